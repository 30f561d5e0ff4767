#include "cuda/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/call.h"
#include "base/reduction.h"
#include "schedule/problem.h"

namespace paceline::cuda {
namespace {

// Payload up to which packets are faster than lines, and lines than chunks, on two H200; and from which two exchanges
// are faster than one in which each rank gives all to everyone (docs/gpu.md).
constexpr std::uint64_t small_to = 512 << 10;
constexpr std::uint64_t medium_to = 4 << 20;
constexpr std::uint64_t two_steps_from = 256 << 10;

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t grain) { return (value + grain - 1) / grain * grain; }

// Chunks short enough to fill the pipeline, long enough to be worth their flags. Both sides of a message cut it alike.
Cut cut(std::uint64_t bytes, const WindowLayout& layout, bool short_chunks) {
  const std::uint64_t share = rounded_up(bytes / (max_lanes * 2), 1024);
  const std::uint64_t most =
      std::min<std::uint64_t>(layout.chunk_slot, short_chunks ? largest_short_chunk : largest_chunk);
  const std::uint64_t chunk = std::clamp<std::uint64_t>(share, 4 << 10, most);
  const std::uint64_t chunks = std::max<std::uint64_t>(1, (bytes + chunk - 1) / chunk);
  return {static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(std::min<std::uint64_t>(chunks, max_lanes))};
}

int blocks_for(std::uint32_t lanes) { return static_cast<int>((lanes + lanes_in_block - 1) / lanes_in_block); }

}  // namespace

void start(Terms& terms, int rank, int ranks, const Request& request) {
  terms.rank = static_cast<std::uint8_t>(rank);
  terms.ranks = static_cast<std::uint8_t>(ranks);
  terms.layout = WindowLayout::of(ranks);
  const Call call = make_call(request.which, request.type, request.op, request.root, request.count, 0);
  terms.call_what = call.what;
  terms.call_count = call.count;
}

namespace {

void align(Terms& terms, std::uintptr_t addresses) {
  addresses |= reinterpret_cast<std::uintptr_t>(terms.own) | reinterpret_cast<std::uintptr_t>(terms.target);
  terms.alignment = addresses % 16 == 0 ? 16 : addresses % 8 == 0 ? 8 : 1;
}

// Everyone but `without`; -1: everyone.
std::uint32_t all_ranks(int ranks, int without = -1) {
  const std::uint32_t all = (std::uint32_t{1} << ranks) - 1;
  return without < 0 ? all : all & ~(std::uint32_t{1} << without);
}
std::uint32_t only(int rank) { return std::uint32_t{1} << rank; }

std::byte* writable(const std::byte* data) { return const_cast<std::byte*>(data); }

// `in_block` threads or warps for each of `wanted`, in as many blocks as there may be; and the warp that moves no data.
Launch spread(Family family, std::uint64_t wanted, std::uint64_t in_block) {
  const std::uint64_t blocks = std::min<std::uint64_t>(max_blocks, (wanted + in_block - 1) / in_block);
  return {family, static_cast<int>(blocks), static_cast<int>(in_block) + 32};
}

// All that is left once the pieces are there. longest: of the pieces between any two ranks, bytes; the same on all.
void finish(Task& task, std::uint64_t longest, bool short_chunks, Launch& launch) {
  const auto places = [](const Pieces& pieces) {
    return pieces.ranks == 0 ? 0 : reinterpret_cast<std::uintptr_t>(pieces.data) | pieces.stride;
  };
  align(task, places(task.gives) | places(task.takes));
  task.cut = cut(longest, task.layout, short_chunks);
  if (longest <= std::min<std::uint64_t>(small_to, task.layout.largest_small())) {
    // A thread for each packet, as long as they fit into few blocks.
    const std::uint64_t packets = std::max<std::uint64_t>(1, (longest + 7) / 8);
    const std::uint64_t most = packets <= 224 * max_blocks ? 224 : packets <= 480 * max_blocks ? 480 : 992;
    launch = spread(Family::small, packets, std::min(most, rounded_up(packets, 32)));
  } else if (longest <= std::min<std::uint64_t>(medium_to, task.layout.largest_medium())) {
    // A warp for each 480 bytes.
    const std::uint64_t warps = (longest + 479) / 480;
    const std::uint64_t most = std::clamp<std::uint64_t>((warps + max_blocks - 1) / max_blocks, 4, 15);
    launch = spread(Family::medium, warps, most);
    launch.threads = static_cast<int>(most + 1) * 32;
  } else {
    launch = {Family::large, blocks_for(task.cut.lanes), 0};
  }
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

// Equal parts of a message, the last ones shorter or empty; each begins at a multiple of 16 bytes.
struct Parts {
  std::uint64_t total;
  std::uint64_t stride;
  Parts(std::uint64_t bytes, int ranks)
      : total(bytes),
        stride(rounded_up((bytes + static_cast<unsigned>(ranks) - 1) / static_cast<unsigned>(ranks), 16)) {}
  [[nodiscard]] std::uint64_t begin(int part) const { return std::min(total, stride * static_cast<unsigned>(part)); }
  [[nodiscard]] std::uint64_t bytes(int part) const { return begin(part + 1) - begin(part); }
};

// The second half of a two-step collective: every rank has its part at `recv`, and gets the others'; not `without`,
// which has them all.
void gather_parts(Task& task, const Request& request, const Parts& parts, int without) {
  const std::uint64_t mine = parts.bytes(task.rank);
  task.gives = {request.recv + parts.begin(task.rank), 0, mine, mine, all_ranks(task.ranks, without)};
  if (task.rank != without) task.takes = {request.recv, parts.stride, parts.stride, parts.total, all_ranks(task.ranks)};
}

void plan_two_steps(const Request& request, int rank, int ranks, std::uint64_t bytes, Exchanges& exchanges) {
  const Parts parts(bytes, ranks);
  Task& first = exchanges.tasks[0];
  Task& second = exchanges.tasks[1];
  first = second = Task();
  start(first, rank, ranks, request);
  start(second, rank, ranks, request);
  const std::uint64_t mine = parts.bytes(rank);
  if (request.which == Collective::all_reduce) {
    set_operation(first, request);
    first.gives = {writable(request.send), parts.stride, parts.stride, bytes, all_ranks(ranks)};
    first.takes = {nullptr, 0, mine, mine, all_ranks(ranks)};
    keep_own(first, request.send + parts.begin(rank), request.recv + parts.begin(rank), mine);
    gather_parts(second, request, parts, -1);
  } else {  // broadcast
    if (rank == request.root) {
      first.gives = {writable(request.send), parts.stride, parts.stride, bytes, all_ranks(ranks)};
      keep_own(first, request.send, request.recv, bytes);
    } else {
      first.takes = {request.recv + parts.begin(rank), 0, mine, mine, only(request.root)};
    }
    gather_parts(second, request, parts, request.root);
  }
  finish(first, parts.stride, true, exchanges.launches[0]);
  finish(second, parts.stride, true, exchanges.launches[1]);
  exchanges.count = 2;
}

}  // namespace

void plan_collective(const Request& request, int rank, int ranks, std::byte* dummy, Exchanges& exchanges) {
  const std::uint64_t bytes = request.count * size_of(request.type);
  const bool two_steps = request.which == Collective::all_reduce || request.which == Collective::broadcast;
  if (ranks > 2 && two_steps && bytes >= two_steps_from) {
    plan_two_steps(request, rank, ranks, bytes, exchanges);
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
  finish(task, request.which == Collective::barrier ? 8 : bytes, request.which != Collective::broadcast,
         exchanges.launches[0]);
}

void plan_messages(std::span<const Request* const> messages, int rank, int ranks, MessageTask& task, Launch& launch) {
  task = MessageTask();
  std::uintptr_t addresses = 0;
  std::uint32_t lanes = 1;
  const std::byte* to_self = nullptr;
  for (const Request* message : messages) {
    Request bare = *message;
    bare.root = 0;
    bare.op = Operation::sum;
    start(task, rank, ranks, bare);
    const std::uint64_t bytes = message->count * size_of(message->type);
    const bool sends = message->which == Collective::send;
    if (message->root == rank) {
      if (sends) to_self = message->send;
      if (!sends) task.target = message->recv;
      task.own_bytes = bytes;
      continue;
    }
    const Piece piece{sends ? writable(message->send) : message->recv, bytes};
    (sends ? task.gives : task.takes)[message->root] = piece;
    Cut& its = (sends ? task.give_cuts : task.take_cuts)[message->root];
    its = cut(bytes, task.layout, false);
    addresses |= reinterpret_cast<std::uintptr_t>(piece.data);
    lanes = std::max(lanes, its.lanes);
    task.longest_chunk = std::max(task.longest_chunk, its.chunk);
  }
  task.own = to_self;
  align(task, addresses);
  // Always in chunks: peers that group their messages differently must still do the same for each.
  launch = {Family::large, blocks_for(lanes), 0};
}

}  // namespace paceline::cuda
