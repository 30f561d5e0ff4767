#include "cuda/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/call.h"
#include "base/reduction.h"
#include "schedule/problem.h"

namespace paceline::cuda {
namespace {

// What strips can carry, whatever a table says, and the row of all ranks' pieces: their offsets are of 32 bits. And the
// shortest message of which every rank has a part.
constexpr std::uint64_t strips_reach = std::uint64_t{1} << 30;
constexpr std::uint64_t row_reach = std::uint64_t{1} << 32;
constexpr std::uint64_t least_in_parts = 4 << 10;
// Sends and receives: by strips up to here, found on two H200 (docs/gpu.md: longer ones alone would gain, too, but not
// beside still longer ones); one at once up to here. Both sides must say the same, so no table is asked.
constexpr std::uint64_t messages_to = 16 << 20;
constexpr std::uint64_t brief_message_to = 512 << 10;

// Reduces whose sums are passed on: by strips up to here, then in chunks. In so many blocks. Found on four H200.
constexpr std::uint64_t passed_strips_to = 128 << 20;
constexpr int passed_strips_blocks = 24;
static_assert(passed_strips_blocks * passing_warps <= message_lanes);  // what every layout has rings for

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t grain) { return (value + grain - 1) / grain * grain; }

int most_blocks(const GpuWay& way, int limit) { return way.blocks == 0 ? limit : std::min<int>(way.blocks, limit); }

// Chunks short enough to fill the pipeline, long enough to be worth their flags. Both sides of a message cut it alike.
Cut cut(std::uint64_t bytes, const WindowLayout& layout, bool short_chunks, const GpuWay& way = {}) {
  constexpr std::uint64_t grain = 1024;
  const std::uint64_t share = rounded_up(bytes / (max_lanes * 2), grain);
  const std::uint64_t most =
      std::min<std::uint64_t>(layout.chunk_slot, short_chunks ? largest_short_chunk : largest_chunk);
  const std::uint64_t chunk = way.chunk == 0
                                  ? std::clamp<std::uint64_t>(share, 4 << 10, most)
                                  : std::clamp<std::uint64_t>(rounded_up(way.chunk, grain), 4 << 10, layout.chunk_slot);
  const std::uint64_t chunks = std::max<std::uint64_t>(1, (bytes + chunk - 1) / chunk);
  const std::uint64_t lanes = static_cast<std::uint64_t>(most_blocks(way, max_blocks)) * lanes_in_block;
  return {static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(std::min(chunks, lanes))};
}

int blocks_for(std::uint32_t lanes) { return static_cast<int>((lanes + lanes_in_block - 1) / lanes_in_block); }

}  // namespace

void start(Terms& terms, int rank, int ranks, const Request& request) {
  terms.rank = static_cast<std::uint8_t>(rank);
  terms.ranks = static_cast<std::uint8_t>(ranks);
  terms.layout = WindowLayout::of(ranks);
  terms.call_what = make_call(request.which, request.type, request.op, request.root, request.count, 0).what;
  terms.call_count = request.count;
}

namespace {

void align(Terms& terms, std::uintptr_t addresses) {
  addresses |= reinterpret_cast<std::uintptr_t>(terms.own) | reinterpret_cast<std::uintptr_t>(terms.target);
  terms.alignment = addresses % 16 == 0 ? 16 : addresses % 8 == 0 ? 8 : addresses % 4 == 0 ? 4 : 1;
}

std::uint32_t all_ranks(int ranks) { return (std::uint32_t{1} << ranks) - 1; }
std::uint32_t only(int rank) { return std::uint32_t{1} << rank; }

std::byte* writable(const std::byte* data) { return const_cast<std::byte*>(data); }

Stride stride_of(Family family) {
  switch (family) {
    case Family::brief: return brief_stride;
    case Family::wide: return wide_stride;
    case Family::deep: return deep_stride;
    default: return streaming_stride;
  }
}

// How strips are moved.
struct Form {
  Family family;
  Stride stride = stride_of(family);
  // Lanes of a block of so many, if each takes `width` warps: of what has rings.
  [[nodiscard]] std::uint32_t most_lanes(int width, int blocks) const {
    return static_cast<std::uint32_t>(
        std::min(strip_warps(stride, width == 1) / width, strip_lanes(width + 1) / blocks));
  }
  // Of so many strips, if they are moved at once.
  [[nodiscard]] bool has_room(std::uint32_t strips, int width, int blocks) const {
    return strips <= static_cast<unsigned>(blocks) * most_lanes(width, blocks) * static_cast<unsigned>(stride.strips);
  }
};

std::uint32_t strips_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (bytes + strip_bytes - 1) / strip_bytes));
}

// The way's, or the next one that has room for so many strips: some have no loop.
Form form_of(const GpuWay& way, std::uint32_t strips, int width) {
  const int blocks = most_blocks(way, strip_blocks);
  for (const Family family : {Family::brief, Family::wide})
    if (const Form form{family}; way.family <= family && form.has_room(strips, width, blocks)) return form;
  if (way.family != Family::deep) return {Family::streaming};
  const Form once{Family::deep, deep_once_stride};
  return once.has_room(strips, width, blocks) ? once : Form{Family::deep};
}

// Lanes for so many strips in rounds. A round of two ranks takes a warp so few instructions that many warps hinder each
// other at the link, unless they also wait for memory, since the L2 cache does not hold the message.
std::uint32_t enough_lanes(const Form& form, std::uint32_t strips, int width) {
  if (width > 1 || form.stride.strips > 1) return UINT32_MAX;
  return (strips <= (12 << 20) / strip_bytes ? 16 : 22) * max_blocks;
}

// `width` warps for each lane, in as many blocks as there may be; and the warp of each that moves no data. in_block: of
// lanes; 0: chosen, where there are rounds so that the last one has about as much as the others.
Launch by_strips(const Form& form, std::uint32_t lanes, int width, int blocks, std::uint32_t in_block) {
  const auto limit = static_cast<std::uint32_t>(blocks);
  const std::uint32_t least = std::clamp<std::uint32_t>(4 / static_cast<unsigned>(width), 1, lanes);
  const std::uint32_t most = form.most_lanes(width, blocks);
  if (in_block == 0) {
    const std::uint32_t enough = std::min(limit * most, enough_lanes(form, lanes, width));
    const std::uint32_t rounds = form.stride.once ? 1 : (lanes + enough - 1) / enough;
    in_block = std::max((lanes + limit * rounds - 1) / (limit * rounds), least);
  }
  in_block = std::min({in_block, lanes, most});
  Launch launch;
  launch.family = form.family;
  launch.blocks = static_cast<int>(std::min(limit, (lanes + in_block - 1) / in_block));
  launch.threads = (static_cast<int>(in_block) * width + 1) * 32;
  launch.once = form.stride.once;
  return launch;
}

// Of a long call: stores to the peers hinder each other less so (direct_moves.cuh).
void lay_in_clusters(Launch& launch) {
  if (launch.blocks % blocks_in_cluster == 0) launch.cluster = blocks_in_cluster;
}

Launch by_strips(const GpuWay& way, std::uint32_t strips, int width) {
  const Form form = form_of(way, strips, width);
  const int blocks = most_blocks(way, strip_blocks);
  const auto at_once = static_cast<std::uint32_t>(form.stride.strips);
  if (!form.stride.once) {
    Launch launch = by_strips(form, (strips + at_once - 1) / at_once, width, blocks, way.lanes);
    if (strips > overlapped_strips) lay_in_clusters(launch);
    return launch;
  }
  // A lane has no more strips than it moves at once.
  const std::uint32_t room = static_cast<unsigned>(blocks) * at_once;
  const std::uint32_t needed = (strips + room - 1) / room;
  return by_strips(form, strips, width, blocks, way.lanes == 0 ? 0 : std::max<std::uint32_t>(way.lanes, needed));
}

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
    launch = {Family::large, blocks_for(task.cut.lanes), 0};
    return;
  }
  task.strips = strips_of(longest);
  launch = by_strips(way, task.strips, task.ranks - 1);
}

// Averages of the narrow floats are scaled before they are added, since their sums overflow soon: as on the host.
bool averages_first(DataType type) {
  return type == DataType::float16 || type == DataType::float8e4m3 || type == DataType::float8e5m2;
}

}  // namespace

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
    store_element(request.type, 1.0 / terms.ranks, terms.factor);
  } else {
    terms.divides = terms.ranks;
  }
}

namespace {

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
    stride = rounded_up((bytes + parts - 1) / parts, grain);
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

// What of a table's way is possible for a call.
GpuWay possible(GpuWay way, const Request& request, int ranks, std::uint64_t bytes) {
  if (request.which == Collective::barrier) return {};
  const bool in_parts = request.which == Collective::all_reduce || request.which == Collective::broadcast ||
                        request.which == Collective::reduce;
  way.two_steps = way.two_steps && in_parts && ranks > 2 && bytes >= least_in_parts;
  // What goes once relays nothing.
  if (way.two_steps && way.family < Family::streaming) way.family = Family::streaming;
  if (way.family == Family::deep && (way.two_steps || reduces(request.which))) way.family = Family::streaming;
  if (bytes > strips_reach || bytes * static_cast<unsigned>(ranks) > row_reach) way.family = Family::large;
  // Who is not the root has no place for what it folds, unless it relays it at once.
  if (way.family == Family::large && request.which == Collective::reduce) way.two_steps = false;
  return way;
}

}  // namespace

GpuWay in_blocks(GpuWay way, int blocks) {
  way.blocks = static_cast<std::uint8_t>(most_blocks(way, blocks));
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
  if (reduces(request.which)) set_operation(task, request);

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
  switch (request.which) {
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
  finish(task, request.which == Collective::barrier ? 8 : bytes, request.which != Collective::broadcast, way,
         exchanges.launches[0]);
}

namespace {

// Of two ranks, what is pushed is passed on.
Folding folding_of(const GpuWay& way, const Request& request, int ranks) {
  if (ranks == 2) return way.passed || way.pushed ? Folding::passed : Folding::loaded;
  if (way.passed && passes_sums(request.type)) return Folding::passed;
  return way.pushed ? Folding::pushed : Folding::loaded;
}

}  // namespace

bool plan_passed_strips(const Request& request, int rank, int ranks, const GpuWay& way, PassTask& task,
                        Launch& launch) {
  const std::uint64_t bytes = request.count * size_of(request.type);
  if (request.which != Collective::reduce || ranks <= 2 || !way.direct || !way.passed || bytes > passed_strips_to ||
      !passes_sums(request.type))
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
  if (!way.direct) return false;
  const DirectPlan plan = plan_direct(request, rank, ranks, folding_of(way, request, ranks));
  if (!plan.possible) return false;
  task = DirectTask();
  start(task, rank, ranks, request);
  if (reduces(request.which)) set_operation(task, request);
  if (task.scales) return false;  // by those who give
  task.call_what |= std::uint32_t{mark(way)} << way_shift;
  task.alignment = 16;
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

namespace {

// Lanes of a message that goes by strips: the same on both sides, whatever else they send and receive.
std::uint32_t lanes_of_message(std::uint64_t bytes) {
  return std::min(strips_of(bytes), static_cast<std::uint32_t>(message_lanes));
}

}  // namespace

void plan_messages(std::span<const Request* const> messages, int rank, int ranks, int blocks, MessageTask& task,
                   Launch& launch) {
  task = MessageTask();
  std::uintptr_t addresses = 0;
  std::uint64_t lengths = 0;
  bool any_long = false;
  std::uint32_t lanes = 1;    // of the message that has most
  std::uint64_t longest = 0;  // that goes by strips
  const std::byte* to_self = nullptr;
  for (const Request* message : messages) {
    const std::uint64_t bytes = message->count * size_of(message->type);
    const auto type = static_cast<std::uint8_t>(message->type);
    Request bare;  // what all have in common
    bare.which = message->which;
    bare.type = DataType::uint8;
    start(task, rank, ranks, bare);
    task.call_count = typed(bytes, type);
    const bool sends = message->which == Collective::send;
    const bool short_one = bytes <= messages_to;
    if (message->root == rank) {
      if (sends) to_self = message->send;
      if (!sends) task.target = message->recv;
      task.own_bytes = bytes;
      any_long = any_long || !short_one;
      continue;
    }
    const Piece piece{sends ? writable(message->send) : message->recv, bytes};
    (sends ? task.gives : task.takes)[message->root] = piece;
    (sends ? task.give_types : task.take_types)[message->root] = type;
    Cut& its = (sends ? task.give_cuts : task.take_cuts)[message->root];
    addresses |= reinterpret_cast<std::uintptr_t>(piece.data);
    lengths |= bytes;
    if (short_one) {
      its = {0, lanes_of_message(bytes)};
      task.ways[task.way_count++] = {static_cast<std::uint8_t>(message->root), sends};
      lanes = std::max(lanes, its.lanes);
      longest = std::max(longest, bytes);
    } else {
      its = cut(bytes, task.layout, false);
      any_long = true;
      (sends ? task.offers_to : task.offers_from) |= only(message->root);
      task.longest_chunk = std::max(task.longest_chunk, its.chunk);
    }
  }
  task.own = to_self;
  align(task, addresses);
  task.whole = task.alignment == 16 && lengths % 16 == 0;
  task.strips = strips_of(longest);
  if (any_long) {
    launch = {Family::large, max_blocks, 0};
    return;
  }
  launch = by_strips(longest <= brief_message_to ? Form{Family::brief} : Form{Family::streaming, paired_stride},
                     lanes * std::max<std::uint32_t>(1, task.way_count), 1, blocks, 0);
  if (task.strips > overlapped_strips) lay_in_clusters(launch);
}

}  // namespace paceline::cuda
