#include "base/trouble.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fixed_text.h"

namespace paceline {

Trouble Trouble::of(const Status& status, int from, std::string_view host) {
  Trouble trouble;
  if (status.ok()) return trouble;
  const Status::Detail& detail = status.detail();
  trouble.code = detail.code;
  trouble.from = from;
  trouble.rank = detail.rank < 0 ? from : detail.rank;
  trouble.peer = detail.peer;
  trouble.system_errno = detail.system_errno;
  trouble.sequence = detail.sequence;
  put(trouble.host, detail.rank < 0 ? host : detail.host);
  put(trouble.collective, detail.collective);
  put(trouble.message, detail.message);
  return trouble;
}

Status Trouble::status() const {
  if (code == Code::ok) return {};
  Status::Detail detail;
  detail.code = code;
  detail.message = text_in(message);
  detail.rank = rank;
  detail.host = text_in(host);
  detail.peer = peer;
  detail.collective = text_in(collective);
  detail.sequence = sequence;
  detail.system_errno = system_errno;
  return Status(std::move(detail));
}

Status Trouble::quoted() const {
  if (code == Code::ok) return {};
  Status::Detail detail = status().detail();
  // What another has said of `from` names it already.
  if (!detail.message.starts_with(fmt::format("rank {} (", from)))
    detail.message = fmt::format("rank {}: {}", from, detail.message);
  return Status(std::move(detail));
}

Status root_cause(const std::vector<Trouble>& troubles) {
  const auto is_error = [](const Trouble& trouble) { return trouble.code != Code::ok; };
  const auto is_own = [&](const Trouble& trouble) { return is_error(trouble) && trouble.rank == trouble.from; };
  auto found = std::ranges::find_if(troubles, is_own);
  if (found == troubles.end()) found = std::ranges::find_if(troubles, is_error);
  return found == troubles.end() ? Status() : found->quoted();
}

}  // namespace paceline
