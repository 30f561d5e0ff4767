// Sends and receives that go by strips (strips.cuh), side by side.
//
// A warp gives or takes one message, never both: what it waits for is that message's other side alone, so no message
// holds up another. A message's lanes depend on its length alone (exchange.cc), for the two sides may group their
// messages differently; where there are fewer warps than lanes, each does several, one after the other.
#pragma once

#include <type_traits>

#include "cuda/kernels/parts/strip_watch.cuh"

namespace paceline::cuda {

// What one of `warps` warps has to do: a message's lanes, the first and every `step`th after it.
struct MessageShare {
  Way way{};
  Piece piece{nullptr, 0};
  std::uint32_t lane = 0;
  std::uint32_t lanes = 0;  // of the message
  std::uint32_t step = 1;
};
__device__ inline MessageShare share_of(const MessageTask& task, std::uint32_t warp, std::uint32_t warps) {
  const std::uint32_t ways = task.way_count;
  if (ways == 0 || warp / ways >= warps / ways) return {};
  const Way way = task.ways[warp % ways];
  const Cut& cut = (way.gives ? task.give_cuts : task.take_cuts)[way.peer];
  return {way, way.gives ? task.gives[way.peer] : task.takes[way.peer], warp / ways, cut.lanes, warps / ways};
}

// The part of one of `warps` warps, all of which call it with all of their threads. watched: another warp tells what
// this one has taken, which it counts in `taken` (MessageWatch); else this one does so.
template <int unroll, bool watched = false>
__device__ void move_messages(const MessageTask& task, std::uint32_t warp, std::uint32_t warps,
                              SharedWord* taken = nullptr) {
  using Link = StripLink<MessageTask, unroll, false, !watched>;
  const MessageShare share = share_of(task, warp, warps);
  const Part part(share.piece);
  std::uint32_t counted = 0;  // in the lanes before
#pragma unroll 1
  for (std::uint32_t lane = share.lane; lane < share.lanes; lane += share.step) {
    Link link(task, share.way.peer, lane, share.lanes);
    link.begin();
    // Whose strips are all whole: there is no edge to look for.
    const std::uint32_t ahead =
        task.whole ? 0 : 1;  // the round behind is loaded as if it were whole: its pairs must be
    const std::uint32_t inner = watched && task.alignment == 16 ? max(link.whole_rounds(part.bytes), ahead) - ahead : 0;
    const auto in_rounds = [&](const auto& move) {
#pragma unroll 1
      for (std::uint32_t round = 0; link.has(part.bytes, round); ++round)
        if (watched && round < inner)
          move(std::true_type(), round);
        else
          move(std::false_type(), round);
    };
    typename Link::Pairs pairs;
    if (share.way.gives) {
      link.load(part.data(), part.bytes, 0, pairs);
      in_rounds([&](auto inside, std::uint32_t round) {
        // What is stored to the peer holds up loads: so the next round's come before.
        typename Link::Pairs ahead;
        link.template load<inside.value>(part.data(), part.bytes, round + 1, ahead);
        link.template put<inside.value>(part.bytes, round, pairs);
#pragma unroll
        for (int u = 0; u < unroll; ++u) pairs[u] = ahead[u];
      });
      link.end_giving();
    } else {
      if (!watched) link.tell();
      in_rounds([&](auto inside, std::uint32_t round) {
        link.template look<inside.value>(part.bytes, round, pairs);
        link.template settle<inside.value>(part.bytes, round, pairs);
        link.template store<inside.value>(part.data(), part.bytes, round, pairs);
        if (watched)
          link.count_in(*taken, counted);
        else
          link.free_strips();
      });
      if (!watched) link.end_taking();
      counted += strips_of_lane(strips_of(part.bytes), lane, share.lanes);
    }
  }
}

// What a thread of a block's first warp watches: another warp that takes a message, in one lane after the other. The
// first warp's threads call everything together.
class MessageWatch {
 public:
  // Of a thread that has nothing to watch.
  MessageWatch() = default;
  // share: of the warp. Touches no memory.
  __device__ MessageWatch(const MessageTask& task, const MessageShare& share) : share_(share) {
    if (share_.way.gives) share_ = {};
    lane_ = here(task);
  }

  // Tells what was taken until the kernel before ended.
  __device__ void begin() { lane_.begin(); }
  // Until there will be nothing to tell before the end, and all warps are in their last lanes. taken: what each of them
  // has counted in.
  __device__ void run(const MessageTask& task, const SharedWord* taken) {
#pragma unroll 1
    while (__any_sync(0xffffffff, lane_.is_open() || has_next())) {
      const std::uint32_t strips = lane_.strips();
      const std::uint32_t now = strips == 0 ? 0 : min(taken[threadIdx.x % 32].look() - counted_, strips);
      const bool told = lane_.tell(now, task.layout.ring());
      if (has_next() && now == strips)
        go_on(task);
      else if (!told)
        __nanosleep(100);
    }
  }
  // When the others have ended.
  __device__ void end() const { lane_.end(); }

 private:
  [[nodiscard]] __device__ bool has_next() const { return share_.lane + share_.step < share_.lanes; }
  __device__ void go_on(const MessageTask& task) {
    lane_.end();
    counted_ += lane_.strips();
    share_.lane += share_.step;
    lane_ = here(task);
    lane_.begin();
  }
  // Where the warp now is.
  [[nodiscard]] __device__ WatchedLane here(const MessageTask& task) const {
    if (share_.lane >= share_.lanes) return {};
    return {task, share_.way.peer, share_.lane,
            strips_of_lane(strips_of(share_.piece.bytes), share_.lane, share_.lanes)};
  }

  MessageShare share_;
  WatchedLane lane_;
  std::uint32_t counted_ = 0;  // in the lanes before
};

}  // namespace paceline::cuda
