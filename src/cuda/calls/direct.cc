#include "cuda/calls/direct.h"

#include <algorithm>

#include "base/rounding.h"
#include "base/types.h"
#include "cuda/memory/rank_bits.h"

namespace paceline::cuda {
namespace {

// Blocks that load from other ranks, or store to them: found on two and four H200 (direct_moves.cuh). With more than
// two ranks, whose ways cross, eight are the fastest that only store.
constexpr int storing_blocks(int ranks) { return ranks == 2 ? 16 : 8; }
constexpr int loading_blocks = 24;
constexpr int relaying_blocks = 16;  // that load a broadcast's parts and store them to the others
constexpr int passing_blocks = 24;   // of an all-reduce; where there are fewer steps, all
// That load and store: of two ranks few for a long message.
constexpr std::uint64_t long_from = 24 << 20;  // bytes
constexpr int both_blocks(int ranks, std::uint64_t bytes) {
  if (ranks == 2) return bytes < long_from ? max_blocks : 16;
  return bytes < 4 * long_from ? 16 : 24;
}

// Equal parts of a message, the last ones shorter or empty. Each begins where a warp's loads and stores would: at half
// of the link's 32 bytes they are slow (a broadcast of 128 MB on four H200 418 us, by the times of 96 and 256 MB, whose
// thirds are multiples of 32 bytes, 383).
Stretch part(std::uint64_t bytes, int index, int count) {
  constexpr std::uint64_t grain = 512;
  const auto parts = static_cast<unsigned>(count);
  const std::uint64_t stride = divided_up(bytes, parts * grain) * grain;
  Stretch stretch;
  stretch.input = stretch.output = std::min(bytes, stride * static_cast<unsigned>(index));
  stretch.bytes = std::min(bytes - stretch.input, stride);
  return stretch;
}

// What each rank folds. Parts of a reduce are folded by those who are not the root: its link carries all of the message
// as it is. Of two ranks the root does it all.
void share_fold(const Request& request, std::uint64_t bytes, int ranks, DirectPlan& plan) {
  const int root = request.root;
  const bool at_root = ranks == 2;
  plan.count = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    Stretch& stretch = plan.stretches[rank];
    std::uint32_t to = only(rank);
    if (request.which == Collective::all_reduce) {
      stretch = part(bytes, rank, ranks);
      to = all_ranks(ranks);
    } else if (request.which == Collective::reduce_scatter) {
      stretch = {0, 0, bytes * static_cast<unsigned>(rank), 0, bytes};
    } else if (at_root ? rank == root : rank != root) {
      stretch = at_root ? part(bytes, 0, 1) : part(bytes, rank > root ? rank - 1 : rank, ranks - 1);
      to = only(root);
    }
    stretch.from = all_ranks(ranks);
    stretch.to = to;
  }
}

void plan_folds(const Request& request, std::uint64_t bytes, int ranks, Folding folding, DirectPlan& plan) {
  share_fold(request, bytes, ranks, plan);
  plan.cluster = blocks_in_cluster;
  plan.folding = folding;
  if (folding == Folding::pushed) {
    plan.link_blocks = pushing_blocks;
    plan.blocks = 2 * pushing_blocks;
    return;
  }
  const bool everything = request.which == Collective::reduce_scatter;
  const std::uint64_t all_bytes = everything ? bytes * static_cast<unsigned>(ranks) : bytes;
  const bool only_loads = ranks == 2 && request.which != Collective::all_reduce;
  // Where a fold goes byte by byte, it is the multiprocessors that it waits for.
  const bool takes_time = !goes_evenly(request) && size_of(request.type) == 1;
  plan.link_blocks = plan.blocks = only_loads || takes_time ? max_blocks : both_blocks(ranks, all_bytes);
  if (ranks == 2 && request.which == Collective::reduce) plan.cluster = 1;
}

// What goes one way is loaded by who gets it, which leaves more of the link to data. But what several give to a root
// fills its link anyway.
void plan_moves(const Request& request, std::uint64_t bytes, int rank, int ranks, DirectPlan& plan) {
  const std::uint32_t everyone = all_ranks(ranks);
  const std::uint64_t mine = bytes * static_cast<unsigned>(rank);
  const int root = request.root;
  const auto add = [&](Stretch stretch, std::uint32_t from, std::uint32_t to) {
    if (stretch.bytes == 0) return;
    stretch.from = from;
    stretch.to = to;
    plan.stretches[plan.count++] = stretch;
  };
  plan.link_blocks = storing_blocks(ranks);
  switch (request.which) {
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
    case Collective::broadcast:  // parts are relayed by those who are not the root
      if (rank == root)
        add(part(bytes, 0, 1), only(rank), only(rank));
      else
        add(part(bytes, rank > root ? rank - 1 : rank, ranks - 1), only(root), everyone & ~only(root));
      plan.link_blocks = ranks == 2 ? loading_blocks : relaying_blocks;
      break;
    case Collective::scatter:
      add({0, 0, mine, 0, bytes}, only(root), only(rank));
      plan.link_blocks = loading_blocks;
      break;
    case Collective::all_to_all:
      for (int step = 0; step < ranks; ++step) {
        const int peer = (rank + step) % ranks;
        add({0, 0, bytes * static_cast<unsigned>(peer), mine, bytes}, only(rank), only(peer));
      }
      break;
    default: break;
  }
  const bool rooted = request.which == Collective::broadcast || request.which == Collective::scatter;
  const bool loaded = request.which == Collective::gather && ranks == 2;
  const int link_blocks = loaded ? loading_blocks : plan.link_blocks;
  plan.blocks = rooted ? link_blocks : link_blocks + keeping_blocks;  // the same on all ranks
  plan.cluster = blocks_in_cluster;
}

// What is folded at each place of a ring; or all of it at the root's place, which is the last.
void plan_passes(const Request& request, std::uint64_t bytes, int ranks, DirectPlan& plan) {
  if (request.which == Collective::reduce) {
    plan.count = ranks;
    Stretch& stretch = plan.stretches[ranks - 1] = part(bytes, 0, 1);
    stretch.from = all_ranks(ranks);
    stretch.to = only(request.root);
  } else {
    share_fold(request, bytes, ranks, plan);
  }
  plan.cluster = blocks_in_cluster;
  plan.folding = Folding::passed;
  plan.link_blocks = plan.blocks = request.which == Collective::all_reduce ? passing_blocks : max_blocks;
}

}  // namespace

DirectPlan plan_direct(const Request& request, int rank, int ranks, Folding folding) {
  DirectPlan plan;
  const std::uint64_t bytes = request.count * size_of(request.type);
  plan.possible = ranks > 1 && request.which != Collective::barrier && bytes > 0;
  if (!plan.possible) return plan;
  if (!reduces(request.which))
    plan_moves(request, bytes, rank, ranks, plan);
  else if (folding == Folding::passed)
    plan_passes(request, bytes, ranks, plan);
  else
    plan_folds(request, bytes, ranks, folding, plan);
  return plan;
}

bool goes_evenly(const Request& request) {
  return request.count * size_of(request.type) % 16 == 0 && !(reduces(request.which) && scales_input(request));
}

bool passes_sums(DataType type) {
  switch (type) {
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::float8e4m3:
    case DataType::float8e5m2: return false;
    default: return true;
  }
}

Seen seen_by_others(const Request& request, Folding folding) {
  const bool loaded = folding == Folding::loaded;
  return {loaded, loaded || request.which != Collective::reduce_scatter};
}

bool fits_direct(const Request& request, int ranks, Folding folding) {
  const auto send = reinterpret_cast<std::uintptr_t>(request.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(request.recv);
  const Seen seen = seen_by_others(request, folding);
  if ((seen.input ? 0 : send) % 16 != 0 || (seen.output ? 0 : recv) % 16 != 0) return false;
  const std::uint64_t bytes = request.count * size_of(request.type) * static_cast<unsigned>(ranks);
  return request.which != Collective::all_to_all || send + bytes <= recv || recv + bytes <= send;
}

}  // namespace paceline::cuda
