// Single copy: messages that their receiver reads where they lie in the sender's process. Where no other process can
// read there, a copy of the message, in memory that they can map, stands in for it: it may be longer than a slot of the
// staging.
#include <fmt/format.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "transport/shared_memory.h"
#include "transport/single_copy.h"

namespace paceline {

void SharedMemoryTransport::begin_single_copy(std::span<const std::byte> input) {
  stand_ins_.clear();  // an earlier call's
  single_copy_from_ = in_place_.single_copy_from;
  // Of shorter ones no message stays there.
  const bool may_stay = input.size() >= single_copy_from_;
  readable_ = may_stay && is_readable(input) ? input : std::span<const std::byte>();
}

// Nothing where `data` can be read, or nothing can stand in for it: then its reader says so.
std::optional<HeapPlace> SharedMemoryTransport::stand_in(std::span<const std::byte> data) {
  const bool tried = !readable_.empty() && data.data() >= readable_.data() && &data.back() <= &readable_.back();
  if (tried || in_place_.heap_from == 0 || is_readable(data)) return std::nullopt;
  const auto memory = allocate_shared(data.size());
  if (!memory.ok()) return std::nullopt;
  stand_ins_.emplace_back(*memory);
  std::memcpy(*memory, data.data(), data.size());
  return own_heap_.find(static_cast<const std::byte*>(*memory), data.size());
}

Attempt SharedMemoryTransport::read_from_sender(Mailbox& mailbox, int from, std::byte* place, const std::byte** data) {
  const Cell& message = *cell(mailbox);
  const pid_t pid = peers_[static_cast<std::size_t>(by_rank_[static_cast<std::size_t>(from)])].pid;
  if (static_cast<Payload>(message.payload) == Payload::in_heap) {
    *data = peer_heaps_.map(pid, message.place);
    if (*data != nullptr) return Attempt::done;
  } else if (read_remote(pid, message.where, place, message.bytes)) {
    *data = place;
    return Attempt::done;
  }
  const int error = errno;
  // What is not there any more was given back.
  if (has_withdrawn(mailbox)) return withdrawn(mailbox, from);
  // A part that no other process can read, in the midst of what they can.
  const char* const remedy = error == EFAULT ? " (PACELINE_SINGLE_COPY=off has it copied)" : "";
  Status::Detail detail =
      descriptor_error(fmt::format("reading the memory of rank {}{}", from, remedy), error).detail();
  // A process that is gone has no memory: the session will say that it died. Until its parent has asked how it ended,
  // its entry in /proc is root's; that its memory can be mapped was tried at the start.
  if (error == ESRCH || error == ENOENT || error == EACCES || error == EPERM) detail.code = Code::remote;
  const bool lack = error == EMFILE || error == ENFILE || error == ENOMEM;  // this rank's
  detail.rank = lack ? my_rank() : from;
  detail.peer = lack ? from : my_rank();
  return fail(Status(std::move(detail)));
}

}  // namespace paceline
