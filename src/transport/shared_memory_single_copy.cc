// Single copy: messages that their receiver reads where they lie in the sender's process. Where no other process can
// read there, messages go through staging. Those that are longer than a slot, all parts of the call's input, are read
// from a copy of it in memory that the others can map.
#include <fmt/format.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "transport/shared_memory.h"
#include "transport/single_copy.h"

namespace paceline {

void SharedMemoryTransport::begin_single_copy(std::span<const std::byte> input) {
  single_copy_from_ = in_place_.single_copy_from;
  input_ = input;
  // Of shorter ones no message stays there.
  const bool may_stay = input.size() >= single_copy_from_;
  input_is_readable_ = may_stay && is_readable(input);
}

bool SharedMemoryTransport::is_of_input(std::span<const std::byte> data) const {
  return !input_.empty() && data.data() >= input_.data() && &data.back() <= &input_.back();
}

bool SharedMemoryTransport::others_can_read(std::span<const std::byte> data) const {
  return (input_is_readable_ && is_of_input(data)) || is_readable(data);
}

// Nothing where `data` can be read, or nothing can stand in for it: then its reader says so.
std::optional<HeapPlace> SharedMemoryTransport::stand_in(std::span<const std::byte> data) {
  if (in_place_.heap_from == 0 || !is_of_input(data) || others_can_read(data)) return std::nullopt;
  if (input_copy_ == nullptr) {
    const auto memory = allocate_shared(input_.size());
    if (!memory.ok()) return std::nullopt;
    input_copy_.reset(*memory);
    std::memcpy(*memory, input_.data(), input_.size());
  }
  const auto* const copy = static_cast<const std::byte*>(input_copy_.get());
  return own_heap_.find(copy + (data.data() - input_.data()), data.size());
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
