// How a rank of the node learns, without the session, that another one takes part in the communicator no more: it has
// failed, has left, or its process has ended.
#include <fmt/format.h>

#include <utility>

#include "base/process.h"
#include "transport/shared_memory.h"

namespace paceline {

Trouble& SharedMemoryTransport::reason_of(int node_rank) const {
  return reinterpret_cast<Reason*>(segment_->data() + layout_.reason(node_rank))->why;
}

void SharedMemoryTransport::show_failure(const Status& reason) {
  if (parted_.exchange(true)) return;
  reason_of(me_) = Trouble::of(reason, my_rank(), {});
  // Release: after the reason.
  presence_->state.store(Presence::State::has_failed, std::memory_order_release);
}

void SharedMemoryTransport::show_departure(std::uint32_t last) {
  if (parted_.exchange(true)) return;
  presence_->last.store(last, std::memory_order_relaxed);
  // Release: after `last`, and all that this rank sent.
  presence_->state.store(Presence::State::has_left, std::memory_order_release);
}

bool SharedMemoryTransport::has_left(int rank, std::uint32_t* sequence) const {
  const Presence& other = *incoming_[index(0, rank, false)].presence;
  // Acquire: as it was released.
  if (other.state.load(std::memory_order_acquire) != Presence::State::has_left) return false;
  *sequence = other.last.load(std::memory_order_relaxed);
  return true;
}

Status SharedMemoryTransport::failure_elsewhere() const {
  for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
    if (other == me_) continue;
    const Presence& presence = *incoming_[index(0, peers_[static_cast<std::size_t>(other)].rank, false)].presence;
    // Acquire: as it was released.
    if (presence.state.load(std::memory_order_acquire) == Presence::State::has_failed) return reason_of(other).status();
  }
  return {};
}

// Whether the communicator has ended on another rank.
Attempt SharedMemoryTransport::find_failed() {
  Status found = failure_elsewhere();
  return found.ok() ? Attempt::done : fail(std::move(found));
}

// Whether the process of a rank of this node has ended. The session tells it sooner, and how, while its rank 0 is
// there. What the rank did before is seen by one more look: its last messages, that it left, or why it failed.
Attempt SharedMemoryTransport::find_dead(int rank, const Call& call) {
  const NodePeer& peer = peers_[static_cast<std::size_t>(by_rank_[static_cast<std::size_t>(rank)])];
  std::uint32_t last = 0;
  if (!peer.identified || has_left(rank, &last) || !has_ended(peer.pid)) return Attempt::done;
  if (seen_dead_.insert(rank).second) return Attempt::done;
  Status::Detail detail;
  detail.code = Code::remote;
  detail.rank = rank;
  detail.collective = title(call);
  detail.sequence = call.sequence;
  detail.message = fmt::format("rank {} (pid {}) died: its process has ended", rank, peer.pid);
  return fail(Status(std::move(detail)));
}

}  // namespace paceline
