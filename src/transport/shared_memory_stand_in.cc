// Single copy of memory that no other process can read: a copy of the message, in memory that they can map, stands in
// for it. A message may be longer than a slot of the staging.
#include <cstring>

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

}  // namespace paceline
