#include "base/status.h"

#include <cstring>

namespace paceline {

const char* name(Code code) {
  switch (code) {
    case Code::ok: return "success";
    case Code::cuda: return "CUDA error";
    case Code::system: return "system error";
    case Code::internal: return "internal error";
    case Code::invalid_argument: return "invalid argument";
    case Code::invalid_usage: return "invalid usage";
    case Code::remote: return "remote error";
    case Code::in_progress: return "in progress";
    case Code::timeout: return "timeout";
    case Code::mismatch: return "mismatched calls";
    case Code::aborted: return "aborted";
    case Code::unsupported: return "unsupported";
  }
  return "unknown";
}

Status::Status(Code code, std::string message) {
  Detail detail;
  detail.code = code;
  detail.message = std::move(message);
  detail_ = std::make_shared<Detail>(std::move(detail));
}

Status Status::system(std::string what, int error) {
  Detail detail;
  detail.code = Code::system;
  detail.message = std::move(what) + ": " + std::strerror(error);
  detail.system_errno = error;
  return Status(std::move(detail));
}

const std::string& Status::message() const {
  static const auto* const none = new std::string("no error");
  return detail_ ? detail_->message : *none;
}

}  // namespace paceline
