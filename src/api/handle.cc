#include "api/handle.h"

#include <deque>


namespace paceline::api {
namespace {

thread_local std::string thread_error = "no error";

}  // namespace

std::string& last_error_of_thread() { return thread_error; }

paceResult_t finish(const Status& status, paceComm* comm) {
  if (status.ok()) [[likely]] return paceSuccess;
  thread_error = status.message();
  if (comm != nullptr && comm->magic.load(std::memory_order_relaxed) == paceComm::valid) {
    const std::lock_guard lock(comm->error_mutex);
    comm->last_error = status.message();
  }
  return static_cast<paceResult_t>(status.code());
}

Status check(paceComm* comm) {
  if (comm == nullptr) [[unlikely]] return Status(Code::invalid_argument, "the communicator is NULL");
  // Relaxed: whoever destroys a communicator while another thread uses it has lost anyway.
  if (comm->magic.load(std::memory_order_relaxed) != paceComm::valid) [[unlikely]]
    return Status(Code::invalid_usage, "the communicator has been destroyed, or is none");
  return {};
}

Result<HostStream*> stream_of(void* stream) {
  if (stream == nullptr) return nullptr;
  auto* handle = static_cast<paceHostStream*>(stream);
  if (handle->magic != paceHostStream::valid)
    return Status(Code::invalid_argument,
                  "`stream` is not a paceHostStream_t: host buffers need NULL or a host stream; CUDA streams need the "
                  "CUDA engine, which this build does not have");
  return handle->stream.get();
}

paceComm* make_handle(std::unique_ptr<Communicator> communicator) {
  // Handles live as long as the process: a few words each.
  static std::mutex mutex;
  static auto* handles = new std::deque<paceComm>();
  const std::lock_guard lock(mutex);
  paceComm& handle = handles->emplace_back();
  handle.communicator = std::move(communicator);
  handle.last_error = "no error";
  return &handle;
}

}  // namespace paceline::api
