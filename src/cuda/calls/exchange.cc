#include "cuda/calls/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/call.h"
#include "base/reduction.h"
#include "base/rounding.h"
#include "cuda/memory/rank_bits.h"
#include "schedule/problem.h"

namespace paceline::cuda {
namespace {

// What strips can carry, whatever a table says, and the row of all ranks' pieces: their offsets are of 32 bits. And the
// shortest message of which every rank has a part.
constexpr std::uint64_t strips_reach = std::uint64_t{1} << 30;
constexpr std::uint64_t row_reach = std::uint64_t{1} << 32;
constexpr std::uint64_t least_in_parts = 4 << 10;

// Reduces whose sums are passed on: by strips up to here, then in chunks. In so many blocks. Found on four H200.
constexpr std::uint64_t passed_strips_to = 128 << 20;
constexpr int passed_strips_blocks = 24;
static_assert(passed_strips_blocks * passing_warps <= message_lanes);  // what every layout has rings for

}  // namespace

void start(Terms& terms, int rank, int ranks, const Request& request) {
  terms.rank = static_cast<std::uint8_t>(rank);
  terms.ranks = static_cast<std::uint8_t>(ranks);
  terms.layout = WindowLayout::of(ranks);
  terms.call_what = make_call(request.which, request.type, request.op, request.root, request.count, 0).what;
  terms.call_count = request.count;
}

void align(Terms& terms, std::uintptr_t addresses) {
  addresses |= reinterpret_cast<std::uintptr_t>(terms.own) | reinterpret_cast<std::uintptr_t>(terms.target);
  terms.alignment = addresses % 16 == 0 ? 16 : addresses % 8 == 0 ? 8 : addresses % 4 == 0 ? 4 : 1;
}

void set_operation(Terms& terms, const Request& request) {
  const bool computes = terms.ranks > 1 || request.op == Operation::avg || request.op == Operation::premulsum;
  terms.folds = computes;  // else one contribution as it is: a copy
  terms.op = static_cast<std::uint8_t>(request.op);
  if (request.op != Operation::avg && request.op != Operation::premulsum) return;
  terms.op = static_cast<std::uint8_t>(Operation::sum);
  if (request.op == Operation::premulsum) {
    terms.scales = true;
    std::memcpy(terms.factor, request.factor.data(), sizeof terms.factor);
  } else if (averages_first(request.type)) {
    terms.scales = true;
    std::ranges::copy(scaling_factor(1.0 / terms.ranks), terms.factor);
  } else {
    terms.divides = terms.ranks;
  }
}

namespace {

std::byte* writable(const std::byte* data) { return const_cast<std::byte*>(data); }

// All that is left once the pieces are there. longest: of the pieces between any two ranks, bytes; the same on all.
void finish(Task& task, std::uint64_t longest, bool short_chunks, const GpuWay& way, Launch& launch) {
  const auto places = [](const Pieces& pieces) {
    return pieces.ranks == 0 ? 0 : reinterpret_cast<std::uintptr_t>(pieces.data) | pieces.stride;
  };
  align(task, places(task.gives) | places(task.takes));
  const auto lengths = [](const Pieces& pieces) { return pieces.ranks == 0 ? 0 : pieces.length | pieces.total; };
  task.whole = task.alignment == 16 &&
               (task.own_bytes | lengths(task.gives) | lengths(task.takes) | lengths(task.gathered)) % 16 == 0;
  task.call_what |= std::uint32_t{mark(way)} << way_shift;
  task.cut = cut(longest, task.layout, short_chunks, way);
  if (way.family == Family::large || task.ranks == 1) {
    launch = by_chunks(task.cut.lanes);
    return;
  }
  task.strips = strips_of(longest);
  launch = by_strips(way, task.strips, task.ranks - 1);
}

// Where a rank's own contribution goes; nowhere if it is there already.
void keep_own(Terms& terms, const std::byte* own, std::byte* target, std::uint64_t bytes) {
  if (!terms.folds && own == target) return;
  terms.own = own;
  terms.target = target;
  terms.own_bytes = bytes;
}

// Equal parts of a message, the last ones shorter or empty. Each begins at a multiple of 16 bytes, long ones at one of
// what a warp moves at once.
struct Parts {
  std::uint64_t stride;
  Parts(std::uint64_t bytes, int count) {
    const auto parts = static_cast<unsigned>(count);
    const std::uint64_t grain = bytes / parts < 32 * strip_bytes ? 16 : strip_bytes;
    stride = rounded_up(divided_up(bytes, parts), grain);
  }
};

// A rank folds its part of the message, or takes it from the root, which has none; then all who have a part give it to
// the others, or to the root of a reduce. Strips in one kernel, chunks in two.
void plan_two_steps(const Request& request, int rank, int ranks, std::uint64_t bytes, const GpuWay& way,
                    Exchanges& exchanges) {
  const bool from_root = request.which == Collective::broadcast;
  const bool to_root = request.which == Collective::reduce;
  const int without = from_root ? request.root : no_rank;
  const Parts parts(bytes, from_root ? ranks - 1 : ranks);
  const std::uint32_t everyone = all_ranks(ranks);
  const Pieces row{request.recv, parts.stride, parts.stride, bytes, everyone, without};
  const Piece mine = rank == without ? Piece{} : row.of(rank);
  Task& first = exchanges.tasks[0];
  first = Task();
  start(first, rank, ranks, request);
  if (!from_root) set_operation(first, request);
  if (rank == without || !from_root) {
    first.gives = row;
    first.gives.data = writable(request.send);
  }
  if (rank == without) {
    first.gives.ranks &= ~only(rank);
    keep_own(first, request.send, request.recv, bytes);
  } else if (from_root) {
    first.takes = {mine.data, 0, mine.bytes, mine.bytes, only(request.root)};
  } else {
    first.takes = {nullptr, 0, mine.bytes, mine.bytes, everyone};
    const bool keeps = !to_root || rank == request.root;
    keep_own(first, request.send + parts.stride * static_cast<unsigned>(rank), keeps ? mine.data : nullptr, mine.bytes);
  }
  // A broadcast's root has all parts, and needs none; only a reduce's root needs any.
  const std::uint32_t others = everyone & ~only(rank);
  const std::uint32_t with_part = from_root ? others & ~only(request.root) : others;
  const std::uint32_t wanting = to_root ? others & only(request.root) : with_part;
  const std::uint32_t relays = mine.bytes == 0 ? 0 : wanting;
  Pieces gathered = row;
  gathered.ranks = rank == without || (to_root && rank != request.root) ? 0 : with_part;

  if (way.family != Family::large) {
    first.relays = relays;
    first.gathered = gathered;
    finish(first, parts.stride, true, way, exchanges.launches[0]);
    exchanges.launches[0].relays = true;
    exchanges.count = 1;
    return;
  }
  Task& second = exchanges.tasks[1];
  second = Task();
  start(second, rank, ranks, request);
  second.gives = {mine.data, 0, mine.bytes, mine.bytes, relays};
  second.takes = gathered;
  finish(first, parts.stride, true, way, exchanges.launches[0]);
  finish(second, parts.stride, true, way, exchanges.launches[1]);
  exchanges.count = 2;
}

// Whether the ranks only meet.
bool only_meets(const Request& request) { return request.which == Collective::barrier || request.count == 0; }

// What of a table's way is possible for a call.
GpuWay possible(GpuWay way, const Request& request, int ranks, std::uint64_t bytes) {
  if (only_meets(request)) return {};
  way.two_steps = way.two_steps && goes_in_parts(request.which) && ranks > 2 && bytes >= least_in_parts;
  // What goes once relays nothing.
  if (way.two_steps && way.family < Family::streaming) way.family = Family::streaming;
  if (way.family == Family::deep && (way.two_steps || reduces(request.which))) way.family = Family::streaming;
  // The bulk copies of chunks take what is even alone.
  if (way.family == Family::large && !goes_evenly(request)) way.family = Family::streaming;
  if (bytes > strips_reach || bytes * static_cast<unsigned>(ranks) > row_reach) way.family = Family::large;
  // Who is not the root has no place for what it folds, unless it relays it at once.
  if (way.family == Family::large && request.which == Collective::reduce) way.two_steps = false;
  return way;
}

}  // namespace

GpuWay way_of_call(const GpuTable& table, const Request& request, int ranks) {
  const std::uint64_t bytes = request.count * size_of(request.type);
  GpuWay way = table.way(request.which, bytes);
  if (goes_evenly(request)) return way;
  const bool follow_each_other = !goes_in_parts(request.which) && bytes % 16 != 0;
  const bool stored_in_bytes =
      bytes % 4 != 0 && (request.which == Collective::all_gather || request.which == Collective::gather ||
                         request.which == Collective::all_to_all);
  const std::uint64_t from = stored_in_bytes ? bytes_direct_from : uneven_direct_from;
  if (follow_each_other && bytes * static_cast<unsigned>(ranks) >= from) way.direct = true;
  way.engines = way.pushed = way.passed = false;
  return way;
}

void plan_collective(const Request& request, int rank, int ranks, const GpuWay& wanted, std::byte* dummy,
                     Exchanges& exchanges) {
  const std::uint64_t bytes = request.count * size_of(request.type);
  const GpuWay way = possible(wanted, request, ranks, bytes);
  if (way.two_steps) {
    plan_two_steps(request, rank, ranks, bytes, way, exchanges);
    return;
  }
  exchanges.count = 1;
  Task& task = exchanges.tasks[0];
  task = Task();
  start(task, rank, ranks, request);
  const Collective pieces = only_meets(request) ? Collective::barrier : request.which;
  if (reduces(pieces)) set_operation(task, request);

  const std::byte* const send = request.send;
  std::byte* const recv = request.recv;
  const std::uint64_t all = bytes * static_cast<unsigned>(ranks);
  const std::uint64_t here = bytes * static_cast<unsigned>(rank);
  const bool root = rank == request.root;
  const std::uint32_t everyone = all_ranks(ranks);
  // What a rank gives to several: the same piece, or a row of pieces.
  const Pieces same{writable(send), 0, bytes, bytes, everyone};
  const Pieces row{writable(send), bytes, bytes, all, everyone};
  const Pieces rows_taken{recv, bytes, bytes, all, everyone};
  const Pieces folded{nullptr, 0, bytes, bytes, everyone};
  switch (pieces) {
    case Collective::all_reduce:
      task.gives = same;
      task.takes = folded;
      keep_own(task, send, recv, bytes);
      task.overwrites = send == recv;
      break;
    case Collective::reduce_scatter:
      task.gives = row;
      task.takes = folded;
      keep_own(task, send + here, recv, bytes);
      break;
    case Collective::reduce:
      if (root) {
        task.takes = folded;
        keep_own(task, send, recv, bytes);
      } else {
        task.gives = {writable(send), 0, bytes, bytes, only(request.root)};
      }
      break;
    case Collective::broadcast:
      if (root) {
        task.gives = same;
        keep_own(task, send, recv, bytes);
      } else {
        task.takes = {recv, 0, bytes, bytes, only(request.root)};
      }
      break;
    case Collective::all_gather:
      task.gives = same;
      task.takes = rows_taken;
      keep_own(task, send, recv + here, bytes);
      break;
    case Collective::gather:
      if (root) {
        task.takes = rows_taken;
        keep_own(task, send, recv + here, bytes);
      } else {
        task.gives = {writable(send), 0, bytes, bytes, only(request.root)};
      }
      break;
    case Collective::scatter:
      if (root) {
        task.gives = row;
        keep_own(task, send + here, recv, bytes);
      } else {
        task.takes = {recv, 0, bytes, bytes, only(request.root)};
      }
      break;
    case Collective::all_to_all:
      task.gives = row;
      task.takes = rows_taken;
      keep_own(task, send + here, recv + here, bytes);
      task.overwrites = send == recv;
      break;
    case Collective::barrier:
      task.gives = {dummy, 0, 8, 8, everyone};
      task.takes = {dummy, 8, 8, std::uint64_t{max_gpus} * 8, everyone};
      break;
    case Collective::send:
    case Collective::recv: break;  // plan_messages
  }
  finish(task, pieces == Collective::barrier ? 8 : bytes, pieces != Collective::broadcast, way, exchanges.launches[0]);
}

namespace {

// Of two ranks, what is pushed is passed on.
Folding folding_of(const GpuWay& way, const Request& request, int ranks) {
  if (!goes_evenly(request)) return Folding::loaded;
  if (ranks == 2) return way.passed || way.pushed ? Folding::passed : Folding::loaded;
  if (way.passed && passes_sums(request.type)) return Folding::passed;
  return way.pushed ? Folding::pushed : Folding::loaded;
}

}  // namespace

bool plan_passed_strips(const Request& request, int rank, int ranks, const GpuWay& way, PassTask& task,
                        Launch& launch) {
  const std::uint64_t bytes = request.count * size_of(request.type);
  if (request.which != Collective::reduce || ranks <= 2 || !way.direct || !way.passed || bytes == 0 ||
      bytes > passed_strips_to || !passes_sums(request.type))
    return false;
  task = PassTask();
  start(task, rank, ranks, request);
  set_operation(task, request);
  if (task.scales) return false;  // by those who give
  task.call_what |= std::uint32_t{mark(way)} << way_shift;
  task.root = request.root;
  keep_own(task, request.send, rank == request.root ? request.recv : nullptr, bytes);
  align(task, 0);
  launch = {Family::streaming, passed_strips_blocks, (1 + passing_warps) * 32, blocks_in_cluster};
  return true;
}

bool plan_direct_task(const Request& request, int rank, int ranks, const GpuWay& way, DirectTask& task,
                      Launch& launch) {
  if (!way.direct || request.op == Operation::premulsum) return false;  // each rank may have a factor of its own
  const DirectPlan plan = plan_direct(request, rank, ranks, folding_of(way, request, ranks));
  if (!plan.possible) return false;
  task = DirectTask();
  start(task, rank, ranks, request);
  if (reduces(request.which)) set_operation(task, request);
  task.call_what |= std::uint32_t{mark(way)} << way_shift;
  task.stretches_are_even = goes_evenly(request);
  task.input = writable(request.send);
  task.output = request.recv;
  task.link_blocks = static_cast<std::uint32_t>(plan.link_blocks);
  task.folding = plan.folding;
  task.root = is_rooted(request.which) ? request.root : no_rank;
  task.count = plan.count;
  std::copy_n(plan.stretches, plan.count, task.stretches);
  launch = {Family::streaming, plan.blocks, direct_threads, plan.cluster};
  GpuWay by_strips = way;
  by_strips.family = Family::streaming;
  Exchanges otherwise;
  plan_collective(request, rank, ranks, by_strips, nullptr, otherwise);
  if (otherwise.launches[0].family != Family::streaming) return true;
  task.otherwise = otherwise.tasks[0];
  task.otherwise.call_what = task.call_what;  // its warps look at the announcement of either message
  return true;
}

}  // namespace paceline::cuda
