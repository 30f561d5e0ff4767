#include "cuda/direct.h"

#include <algorithm>

#include "base/types.h"

namespace paceline::cuda {
namespace {

// Blocks that load from other ranks, or store to them: found on H200 (direct_moves.cuh). With more than two ranks,
// whose ways cross, eight are the fastest that only store.
constexpr int storing_blocks(int ranks) { return ranks == 2 ? 16 : 8; }
constexpr int loading_blocks = 16;                                     // where others copy what a rank keeps of its own
constexpr int both_blocks(int ranks) { return ranks == 2 ? 16 : 24; }  // that load and store
constexpr int keeping_blocks = 8;                                      // that copy what a rank keeps of its own

// Equal parts of a message, multiples of 16 bytes, the last ones shorter or empty.
Stretch part(std::uint64_t bytes, int index, int count) {
  const auto parts = static_cast<unsigned>(count);
  const std::uint64_t stride = (bytes / 16 + parts - 1) / parts * 16;
  Stretch stretch;
  stretch.input = stretch.output = std::min(bytes, stride * static_cast<unsigned>(index));
  stretch.bytes = std::min(bytes - stretch.input, stride);
  return stretch;
}

}  // namespace

DirectPlan plan_direct(const Request& request, int rank, int ranks) {
  DirectPlan plan;
  const std::uint64_t bytes = request.count * size_of(request.type);
  plan.possible = ranks > 1 && request.which != Collective::barrier && bytes > 0 && bytes % 16 == 0;
  if (!plan.possible) return plan;

  const std::uint32_t everyone = (std::uint32_t{1} << ranks) - 1;
  const auto only = [](int one) { return std::uint32_t{1} << one; };
  const std::uint64_t mine = bytes * static_cast<unsigned>(rank);
  const int root = request.root;
  const auto add = [&](Stretch stretch, std::uint32_t from, std::uint32_t to) {
    if (stretch.bytes == 0) return;
    stretch.from = from;
    stretch.to = to;
    plan.stretches[plan.count++] = stretch;
  };
  // What goes one way is loaded by who gets it, which leaves more of the link to data. But what several give to a root
  // fills its link anyway. Parts of a rooted collective are moved by those who are not the root: its link carries all
  // of the message as it is.
  const auto without_root = [&] { return part(bytes, rank > root ? rank - 1 : rank, ranks - 1); };
  const auto keep = [&](Stretch stretch) { add(stretch, only(rank), only(rank)); };
  plan.link_blocks = storing_blocks(ranks);
  switch (request.which) {
    case Collective::all_reduce:
      add(part(bytes, rank, ranks), everyone, everyone);
      plan.link_blocks = both_blocks(ranks);
      break;
    case Collective::reduce_scatter:
      add({0, 0, mine, 0, bytes}, everyone, only(rank));
      plan.link_blocks = max_blocks;
      break;
    case Collective::reduce:
      plan.link_blocks = ranks == 2 ? max_blocks : both_blocks(ranks);
      if (ranks == 2 ? rank == root : rank != root)
        add(ranks == 2 ? part(bytes, 0, 1) : without_root(), everyone, only(root));
      break;
    case Collective::all_gather: add({0, 0, 0, mine, bytes}, only(rank), everyone); break;
    case Collective::gather:
      if (ranks > 2) {
        add({0, 0, 0, mine, bytes}, only(rank), only(root));
      } else if (rank == root) {
        plan.link_blocks = loading_blocks;
        for (int peer = 0; peer < ranks; ++peer)
          add({0, 0, 0, bytes * static_cast<unsigned>(peer), bytes}, only(peer), only(root));
      }
      break;
    case Collective::broadcast:
      if (rank == root)
        keep(part(bytes, 0, 1));
      else
        add(without_root(), only(root), everyone & ~only(root));
      plan.link_blocks = ranks == 2 ? max_blocks : both_blocks(ranks);
      break;
    case Collective::scatter:
      add({0, 0, mine, 0, bytes}, only(root), only(rank));
      plan.link_blocks = max_blocks;
      break;
    case Collective::all_to_all:
      for (int step = 0; step < ranks; ++step) {
        const int peer = (rank + step) % ranks;
        add({0, 0, bytes * static_cast<unsigned>(peer), mine, bytes}, only(rank), only(peer));
      }
      break;
    default: break;
  }
  if (ranks > 2) return plan;
  // Where both ranks move data, in clusters; and no more blocks than are of use: the multiprocessors are for what else
  // goes on.
  switch (request.which) {
    case Collective::all_reduce: plan.blocks = plan.link_blocks; break;
    case Collective::all_gather:
    case Collective::all_to_all: plan.blocks = plan.link_blocks + keeping_blocks; break;
    case Collective::reduce_scatter: break;
    default: return plan;
  }
  plan.cluster = 4;
  return plan;
}

bool fits_direct(const Request& request, int ranks) {
  const auto send = reinterpret_cast<std::uintptr_t>(request.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(request.recv);
  if ((send | recv) % 16 != 0) return false;
  const std::uint64_t bytes = request.count * size_of(request.type) * static_cast<unsigned>(ranks);
  return request.which != Collective::all_to_all || send + bytes <= recv || recv + bytes <= send;
}

}  // namespace paceline::cuda
