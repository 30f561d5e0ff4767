// How ranks that wait long over shared memory find out that they have called different things.
#include <algorithm>
#include <optional>

#include "transport/mismatch.h"
#include "transport/shared_memory.h"

namespace paceline {
namespace {

std::uint64_t words_of(const Call& call) { return static_cast<std::uint64_t>(call.what) << 32 | call.sequence; }

}  // namespace

Attempt SharedMemoryTransport::compare(int from, const Call& call, bool owed) {
  if (find_failed() == Attempt::failed || (from >= 0 && find_dead(from, call) == Attempt::failed))
    return Attempt::failed;
  const bool misses_message = from >= 0 && owed;
  // Numbered by pairs, sends and receives do not compare.
  if (!is_collective(call)) return misses_message ? find_overtaken(from, call) : Attempt::done;
  show(call, 1);
  // Any rank may be the one that finds out: the other call may have nothing to do with the rank waited for.
  for (const NodePeer& peer : peers_)
    if (peer.rank != my_rank() && find_other_call(peer.rank, call) == Attempt::failed) return Attempt::failed;
  return misses_message ? find_passed(from, call) : Attempt::done;
}

// This rank has taken everything of the calls that it has made.
Status SharedMemoryTransport::untaken() {
  for (const NodePeer& peer : peers_) {
    if (peer.rank == my_rank()) continue;
    const Cell* message = find_next(peer.rank, [](const Call&) { return true; });
    if (message != nullptr) return left_untaken(my_rank(), peer.rank, message->call);
  }
  return {};
}

void SharedMemoryTransport::announce(const Call& call) {
  // Others may come to their call long after this rank has made others.
  constexpr std::uint32_t calls_to_come = 1U << 20;
  show(call, calls_to_come);
}

void SharedMemoryTransport::show(const Call& call, std::uint32_t calls) {
  const std::uint64_t words = words_of(call);
  if (presence_->waiting_words.load(std::memory_order_relaxed) == words) return;
  // Release: the words never stand beside another call's size.
  presence_->waiting_words.store(0, std::memory_order_release);
  presence_->waiting_size.store(call.size, std::memory_order_release);
  presence_->waiting_words.store(words, std::memory_order_release);
  // A wait that ends does not take back what was announced for longer: this later call, too, says that it is over.
  shown_for_ = std::max(shown_for_, calls);
}

// The call in which a rank waits long; one that it has ended without a message, or waited in since. None while it
// changes it.
std::optional<Call> SharedMemoryTransport::announced_by(int rank) const {
  const Presence& other = *incoming_[index(0, rank, false)].presence;
  // Acquire: as the writer's releases.
  const std::uint64_t words = other.waiting_words.load(std::memory_order_acquire);
  const std::uint64_t size = other.waiting_size.load(std::memory_order_acquire);
  if (words == 0 || other.waiting_words.load(std::memory_order_acquire) != words) return std::nullopt;
  return Call{static_cast<std::uint32_t>(words), static_cast<std::uint32_t>(words >> 32), size};
}

template <class Is>
const Cell* SharedMemoryTransport::find_next(int from, const Is& is) const {
  for (int channel = 0; channel < max_channels; ++channel) {
    for (const bool to_all : {false, true}) {
      const Cell* message = arrived(incoming_[index(channel, from, to_all)]);
      if (message != nullptr && is(message->call)) return message;
    }
  }
  return nullptr;
}

// Whether `rank` has called something else: it waits there, or has sent for it. This rank has taken everything of the
// calls that it has ended: what still lies there of an earlier one belongs to none of them. Later ones' messages have
// only come early.
Attempt SharedMemoryTransport::find_other_call(int rank, const Call& call) {
  const std::optional<Call> announced = announced_by(rank);
  if (announced && announced->sequence == call.sequence && !(*announced == call))
    return fail(mismatch(my_rank(), call, rank, *announced));
  const Cell* message = find_next(rank, [&](const Call& theirs) {
    return is_collective(theirs) && !(theirs == call) && !comes_before(call.sequence, theirs.sequence);
  });
  return message == nullptr ? Attempt::done : fail(mismatch(my_rank(), call, rank, message->call));
}

// A message of this call is missing. If `from` is in a later one, whatever it sent for this is here: if that is
// nothing, it called another.
Attempt SharedMemoryTransport::find_passed(int from, const Call& call) {
  std::optional<Call> later = announced_by(from);
  if (later == call) return Attempt::done;
  if (later && !comes_before(call.sequence, later->sequence)) later.reset();
  if (!later) {
    const Cell* message = find_next(from, [&](const Call& theirs) {
      return is_collective(theirs) && comes_before(call.sequence, theirs.sequence);
    });
    if (message == nullptr) return Attempt::done;
    later = message->call;
  }
  // This look sees what came before the later call's message, or announcement.
  const auto of_this_call = [&](const Call& theirs) {
    return is_collective(theirs) && theirs.sequence == call.sequence;
  };
  return find_next(from, of_this_call) == nullptr ? fail(passed_over(my_rank(), call, from, *later)) : Attempt::done;
}

// A receive of a pair waits, and `from` has called a collective before it sent. Where both go through one mailbox that
// is a mismatch, so it is one where the collective's message lies elsewhere.
Attempt SharedMemoryTransport::find_overtaken(int from, const Call& call) {
  const Cell* message = find_next(from, is_collective);
  if (message == nullptr) return Attempt::done;
  const Call theirs = message->call;
  // This look sees what was sent before the collective's message.
  const auto of_pair = [](const Call& one) { return !is_collective(one); };
  return find_next(from, of_pair) == nullptr ? fail(mismatch(my_rank(), call, from, theirs)) : Attempt::done;
}

}  // namespace paceline
