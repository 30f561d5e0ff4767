// Sends and receives that go by strips (strips.cuh), side by side.
//
// A warp gives or takes one message, never both: what it waits for is that message's other side alone, so no message
// holds up another. A message's lanes depend on its length alone (exchange.cc), for the two sides may group their
// messages differently; where there are fewer warps than lanes, each does several, one after the other.
#pragma once

#include "cuda/strips.cuh"

namespace paceline::cuda {

// The part of one of `warps` warps, all of which call it with all of their threads.
template <int unroll>
__device__ void move_messages(const MessageTask& task, std::uint32_t warp, std::uint32_t warps) {
  using Link = StripLink<MessageTask, unroll, false>;
  const std::uint32_t ways = task.way_count;
  if (ways == 0) return;
  const Way way = task.ways[warp % ways];
  const std::uint32_t together = warps / ways;  // warps of a message
  const Piece piece = way.gives ? task.gives[way.peer] : task.takes[way.peer];
  const std::uint32_t lanes = (way.gives ? task.give_cuts : task.take_cuts)[way.peer].lanes;
  const Part part(piece);
  if (warp / ways >= together) return;
#pragma unroll 1
  for (std::uint32_t lane = warp / ways; lane < lanes; lane += together) {
    Link link(task, way.peer, lane, lanes);
    link.begin();
    typename Link::Pairs pairs;
    if (way.gives) {
#pragma unroll 1
      for (std::uint32_t round = 0; link.has(part.bytes, round); ++round) {
        link.load(part.data(), part.bytes, round, pairs);
        link.put(part.bytes, round, pairs);
      }
      link.end_giving();
    } else {
      link.tell();
#pragma unroll 1
      for (std::uint32_t round = 0; link.has(part.bytes, round); ++round) {
        link.look(part.bytes, round, pairs);
        link.settle(part.bytes, round, pairs);
        link.store(part.data(), part.bytes, round, pairs);
        link.free_strips();
      }
      link.end_taking();
    }
  }
}

}  // namespace paceline::cuda
