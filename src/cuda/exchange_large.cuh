// The exchange of long messages: blocks that give and take at the same time, lane by lane.
//
// A piece is cut into chunks, and chunk k goes through lane k % lanes. A lane is a ring of chunks in the peer's window:
// `ready` there counts the chunks that came, and `freed` at their source those that were taken, so that a giver never
// is more than a ring ahead. A block has four lanes: its first four warps give, lane after lane; four groups of four
// warps take, one for each lane. They wait for a chunk, then fold it with the others' and the rank's own, or copy it.
// While one group waits, the others work, so the link is busy in both directions all the time, and what it brought is
// still in the L2 cache when it is read.
//
// On sm_90 one thread gives, by bulk copies: memory -> shared memory -> the peer's window, several in flight each way;
// a second one announces what has arrived, since the fence before that takes longer than a copy.
// Elsewhere, and for addresses that are not multiples of 16 or values that are scaled, 128 threads copy.
//
// Time: launch + a few chunks' time + M/B. With two ranks each collective moves the fewest bytes there are; with more,
// exchange.cc puts two exchanges in a row where that takes fewer.
#pragma once

#include "cuda/exchange_small.cuh"

namespace paceline::cuda {

inline constexpr int giving_threads = 128;
inline constexpr int group_threads = 128;  // that take from one lane
// Chunks in shared memory; on their way into it; and on their way out of it.
struct LongChunks {
  static constexpr int stages = 6, loads_ahead = 3, stores_open = 2;
};
struct ShortChunks {
  static constexpr int stages = 12, loads_ahead = 5, stores_open = 6;
};
inline constexpr int unannounced = 16;  // chunks that may have arrived without the peer knowing it yet

struct LargeShared {
  alignas(128) std::byte chunks[LongChunks::stages * largest_chunk];
  alignas(8) std::uint64_t loaded[ShortChunks::stages];  // barriers
  Numbers numbers[max_gpus];
  std::uint32_t chunks_given[max_gpus][lanes_in_block];
  std::uint32_t chunks_taken[max_gpus][lanes_in_block];
  std::uint32_t there[max_gpus][lanes_in_block];  // chunks that had come and were not taken, at the last look
  // Chunks given by bulk copies, on their way to be announced.
  struct Arrival {
    std::uint32_t* ready;
    std::uint32_t count;
  } arrivals[unannounced];
  volatile std::uint32_t arrived;
  volatile std::uint32_t announced;
  volatile bool given_all;
  volatile std::uint32_t read[lanes_in_block];  // rounds in which all that is given was read from the rank's memory
  // A barrier needs all of its threads: those of one side leave together, by a flag that is written before a barrier.
  volatile bool failed;  // anyone's; looked at by those who wait
  bool giving_failed;
  bool taking_failed[lanes_in_block];
};

// The chunk of a piece that a lane has in a round.
struct Chunk {
  std::uint64_t offset;
  std::uint32_t bytes;  // 0: none
};
__device__ inline Chunk chunk_of(const Piece& piece, const Cut& cut, std::uint32_t lane, std::uint32_t round) {
  if (lane >= cut.lanes) return {0, 0};
  const std::uint64_t offset = (lane + static_cast<std::uint64_t>(round) * cut.lanes) * cut.chunk;
  if (offset >= piece.bytes) return {0, 0};
  const std::uint64_t left = piece.bytes - offset;
  return {offset, left < cut.chunk ? static_cast<std::uint32_t>(left) : cut.chunk};
}
__device__ inline std::uint32_t first_lane() { return blockIdx.x * lanes_in_block; }

// What this block gives, in order: round by round, lane by lane, peer by peer.
template <class Task>
class Cursor {
 public:
  __device__ explicit Cursor(const Task& task) : task_(task) { settle(); }
  [[nodiscard]] __device__ bool ended() const { return ended_; }
  [[nodiscard]] __device__ std::uint32_t round() const { return round_; }
  [[nodiscard]] __device__ int lane() const { return lane_; }  // of this block
  [[nodiscard]] __device__ int peer() const {
    const int peer = task_.rank + step_;
    return peer < task_.ranks ? peer : peer - task_.ranks;
  }
  [[nodiscard]] __device__ std::uint32_t bytes() const { return chunk_.bytes; }
  [[nodiscard]] __device__ std::byte* data() const { return data_; }
  __device__ void next() {
    ++step_;
    settle();
  }

 private:
  // The first lane of a block is the last to run out of chunks.
  __device__ void settle() {
    for (bool any = step_ > 1 || lane_ > 0;; ++round_, lane_ = 0, any = false) {
#pragma unroll 1
      for (; lane_ < lanes_in_block; ++lane_, step_ = 1)
#pragma unroll 1
        for (; step_ < task_.ranks; ++step_) {
          const Piece piece = task_.give(peer());
          chunk_ = chunk_of(piece, task_.give_cut(peer()), first_lane() + static_cast<std::uint32_t>(lane_), round_);
          data_ = piece.data + chunk_.offset;
          if (chunk_.bytes != 0) return;
        }
      ended_ = !any;
      if (ended_) return;
    }
  }
  const Task& task_;
  int step_ = 1;
  int lane_ = 0;
  std::uint32_t round_ = 0;
  bool ended_ = false;
  Chunk chunk_{};
  std::byte* data_ = nullptr;
};

template <class Task>
__device__ std::byte* chunk_slot(const Task& task, int owner, int source, int lane, std::uint32_t number) {
  const WindowLayout& layout = task.layout;
  const auto ring = static_cast<std::uint64_t>(place_of(source, owner)) * max_lanes + first_lane() + lane;
  return task.windows[owner] + layout.large +
         (ring * layout.chunk_slots + number % layout.chunk_slots) * layout.chunk_slot;
}

// How many chunks of this lane the peer has taken.
template <class Task>
__device__ std::uint32_t peek_freed(const Task& task, int peer, int lane) {
  return peek(&words(task.windows[task.rank]).freed[peer][first_lane() + lane]);
}

// Room for chunk `number` in the peer's ring. freed: an earlier look.
template <class Task>
__device__ bool wait_for_room(const Task& task, LargeShared& shared, int peer, int lane, std::uint32_t number,
                              std::uint32_t freed) {
  Patience patience(task);
  for (; !reached(freed, number + 1 - task.layout.chunk_slots); freed = peek_freed(task, peer, lane))
    if (shared.failed || !patience.more(peer, shared.numbers[peer].given + 1)) {
      shared.failed = true;
      return false;
    }
  return true;
}

// ---- Giving, by 128 threads ----

template <class Element, class Task>
__device__ void give_by_threads(const Task& task, LargeShared& shared) {
  const auto together = [] { asm volatile("bar.sync 1, 128;" ::: "memory"); };
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (Cursor<Task> at(task); !at.ended();) {
    const int peer = at.peer();
    const int lane = at.lane();
    const std::uint32_t number = shared.chunks_given[peer][lane];
    if (thread == 0 && !wait_for_room(task, shared, peer, lane, number, peek_freed(task, peer, lane)))
      shared.giving_failed = true;
    together();
    if (shared.giving_failed) return;
    const std::byte* const from = at.data();
    std::byte* const to = chunk_slot(task, peer, task.rank, lane, number);
    const std::uint32_t bytes = at.bytes();
    std::uint32_t done = 0;
    if (task.alignment == 16) {
      constexpr int unroll = 8;
      done = bytes / 16 * 16;
#pragma unroll 1
      for (std::uint32_t i = thread * 16; i < done; i += giving_threads * 16 * unroll) {
        uint4 data[unroll];
#pragma unroll
        for (int u = 0; u < unroll; ++u)
          if (const std::uint32_t j = i + u * giving_threads * 16; j < done)
            data[u] = *reinterpret_cast<const uint4*>(from + j);
#pragma unroll
        for (int u = 0; u < unroll; ++u)
          if (const std::uint32_t j = i + u * giving_threads * 16; j < done)
            post(reinterpret_cast<uint4*>(to + j), scaled<Element>(task, data[u]));
      }
    }
#pragma unroll 1
    for (std::uint32_t i = done + thread * 8; i < bytes; i += giving_threads * 8)
      store_8(to + i, scaled<Element>(task, load_8(from + i, bytes - i, task.alignment >= 8)), 8, true);
    __threadfence_system();  // every thread's part comes before the count of its chunk
    const std::uint32_t round = at.round();
    at.next();
    together();
    if (thread == 0) {
      post(&words(task.windows[peer]).ready[task.rank][first_lane() + lane], number + 1);
      shared.chunks_given[peer][lane] = number + 1;
      if (at.ended() || at.lane() != lane || at.round() != round) shared.read[lane] = round + 1;
    }
    together();
  }
  if (thread < lanes_in_block) shared.read[thread] = UINT32_MAX;
}

// ---- Giving, by bulk copies ----

#if __CUDA_ARCH__ >= 900

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void start_load(LargeShared& shared, int stage, int stage_bytes, const std::byte* from,
                                  std::uint32_t bytes) {
  const std::uint32_t barrier = shared_address(&shared.loaded[stage]);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  if (bytes == 0) return;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared.chunks + stage * stage_bytes)),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void wait_for_load(LargeShared& shared, int stage, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(&shared.loaded[stage])),
      "r"(parity)
      : "memory");
}
__device__ inline void start_store(LargeShared& shared, int stage, int stage_bytes, std::byte* to,
                                   std::uint32_t bytes) {
  if (bytes != 0)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(shared.chunks + stage * stage_bytes)), "r"(bytes)
                 : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// One thread. Loads run ahead of stores.
template <class Pace, class Task>
__device__ void give_by_bulk_copies(const Task& task, LargeShared& shared) {
  constexpr int stages = Pace::stages;
  constexpr int loads_ahead = Pace::loads_ahead;
  constexpr int stores_open = Pace::stores_open;
  constexpr int stage_bytes = sizeof shared.chunks / stages;
  for (int stage = 0; stage < stages; ++stage)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&shared.loaded[stage])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");

  Cursor<Task> loading(task);
  Cursor<Task> storing(task);
  std::uint32_t loads = 0;
  std::uint32_t stores = 0;
  std::uint32_t freed = storing.ended() ? 0 : peek_freed(task, storing.peer(), storing.lane());
#pragma unroll 1
  while (!storing.ended()) {
#pragma unroll 1
    for (; !loading.ended() && loads < stores + loads_ahead; loading.next(), ++loads) {
      // The stage's last store has read it.
      if (loads >= stages) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(stages - loads_ahead) : "memory");
      start_load(shared, static_cast<int>(loads % stages), stage_bytes, loading.data(), loading.bytes() / 16 * 16);
    }
    const int stage = static_cast<int>(stores % stages);
    const int peer = storing.peer();
    const int lane = storing.lane();
    const std::uint32_t number = shared.chunks_given[peer][lane];
    wait_for_load(shared, stage, stores / stages & 1);
    if (!wait_for_room(task, shared, peer, lane, number, freed)) {
      // What is under way reads and writes shared memory, which must not end before.
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#pragma unroll 1
      for (std::uint32_t i = stores + 1; i < loads; ++i)
        wait_for_load(shared, static_cast<int>(i % stages), i / stages & 1);
      return;
    }
    const std::uint32_t bytes = storing.bytes();
    const std::uint32_t whole = bytes / 16 * 16;
    std::byte* const to = chunk_slot(task, peer, task.rank, lane, number);
    start_store(shared, stage, stage_bytes, to, whole);
#pragma unroll 1
    for (std::uint32_t i = whole; i < bytes; ++i)
      *reinterpret_cast<volatile std::uint8_t*>(to + i) = static_cast<std::uint8_t>(storing.data()[i]);
    shared.chunks_given[peer][lane] = number + 1;
#pragma unroll 1
    while (stores - shared.announced >= unannounced)
      if (shared.failed) break;
    shared.arrivals[stores % unannounced] = {&words(task.windows[peer]).ready[task.rank][first_lane() + lane],
                                             number + 1};
    ++stores;
    const std::uint32_t round = storing.round();
    storing.next();
    if (!storing.ended()) freed = peek_freed(task, storing.peer(), storing.lane());  // in time for the next
    if (storing.ended() || storing.lane() != lane || storing.round() != round) shared.read[lane] = round + 1;
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(stores_open) : "memory");
    __threadfence_block();  // what has arrived comes before the count of it
    if (stores > stores_open) shared.arrived = stores - stores_open;
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  __threadfence_block();
  shared.arrived = stores;
  __threadfence_block();
  shared.given_all = true;
#pragma unroll 1
  for (int lane = 0; lane < lanes_in_block; ++lane) shared.read[lane] = UINT32_MAX;
}

// Another thread: tells the peers what has arrived, as much as there is with one fence.
__device__ inline void announce_arrivals(LargeShared& shared) {
#pragma unroll 1
  for (std::uint32_t announced = 0; !shared.failed;) {
    const bool all = shared.given_all;
    __threadfence_block();
    const std::uint32_t arrived = shared.arrived;
    if (arrived == announced) {
      if (all) return;
      __nanosleep(100);  // a thread that spins takes time from those that copy: 2% of a long all-reduce
      continue;
    }
    __threadfence_system();  // the chunks come before their counts, for whoever acquires those
#pragma unroll 1
    for (; announced != arrived; ++announced) {
      const LargeShared::Arrival& arrival = shared.arrivals[announced % unannounced];
      post(arrival.ready, arrival.count);
    }
    shared.announced = announced;
  }
}

#endif

// ---- Taking: a group of 128 threads for each lane ----

struct Group {
  int lane;    // of this block
  int thread;  // of the group
  __device__ void together() const { asm volatile("bar.sync %0, 128;" ::"r"(lane + 2) : "memory"); }
};

// What a group takes from its lane, round by round. All of its threads call everything.
template <class Task>
class Taking {
 public:
  __device__ Taking(const Task& task, LargeShared& shared, const Group& group)
      : task_(task), shared_(shared), group_(group), lane_(first_lane() + static_cast<std::uint32_t>(group.lane)) {}

  [[nodiscard]] __device__ Chunk chunk(int source) const {
    return chunk_of(task_.take(source), task_.take_cut(source), lane_, round_);
  }
  // Where this round's chunk of a source lies.
  [[nodiscard]] __device__ const std::byte* slot(int source) const {
    return chunk_slot(task_, task_.rank, source, group_.lane, shared_.chunks_taken[source][group_.lane] + round_);
  }

  // This round's chunk of every source is there. Each look tells how many more are: those are not waited for again.
  __device__ bool wait() {
    if (known_ == 0) {
      look();
      group_.together();
      if (shared_.taking_failed[group_.lane]) return false;
      known_ = UINT32_MAX;
#pragma unroll 1
      for (int source = 0; source < task_.ranks; ++source)
        if (source != task_.rank && chunk(source).bytes != 0) known_ = min(known_, shared_.there[source][group_.lane]);
    }
    --known_;
    return true;
  }

  // After all of the group have read them: the chunks are the sources' again.
  __device__ void free() {
    group_.together();
    const int source = group_.thread;
    if (source < task_.ranks && source != task_.rank && chunk(source).bytes != 0)
      post(&words(task_.windows[source]).freed[task_.rank][lane_],
           shared_.chunks_taken[source][group_.lane] + ++taken_);
    ++round_;
  }

  // At the end.
  __device__ void count() {
    group_.together();
    if (group_.thread < task_.ranks) shared_.chunks_taken[group_.thread][group_.lane] += taken_;
  }

 private:
  // A thread for each source waits for its chunk.
  __device__ void look() {
    const int source = group_.thread;
    if (source < task_.ranks && source != task_.rank && chunk(source).bytes != 0) {
      const std::uint32_t* const ready = &words(task_.windows[task_.rank]).ready[source][lane_];
      const std::uint32_t before = shared_.chunks_taken[source][group_.lane] + round_;
      const Expected message = expected(task_, source, shared_.numbers[source].taken + 1);
      Patience patience(task_);
      std::uint32_t count = peek_acquire(ready);
#pragma unroll 1
      while (!reached(count, before + 1)) {
        if (shared_.failed || !patience.more(message)) {
          shared_.failed = true;
          shared_.taking_failed[group_.lane] = true;
          break;
        }
        count = peek_acquire(ready);
      }
      // Of what lies there, only that of this kernel counts: later chunks are of later calls.
      shared_.there[source][group_.lane] = task_.overwrites ? 1 : count - before;
    }
    // What is taken may lie where something is given: not before that was read.
    if (task_.overwrites && group_.thread == 32)
#pragma unroll 1
      while (shared_.read[group_.lane] <= round_)
        if (shared_.failed) {
          shared_.taking_failed[group_.lane] = true;
          break;
        }
  }

  const Task& task_;
  LargeShared& shared_;
  const Group& group_;
  const std::uint32_t lane_;
  std::uint32_t round_ = 0;
  std::uint32_t known_ = 0;  // chunks of every source that are there
  std::uint32_t taken_ = 0;  // of the source that this thread looks after
};

// A vector of every source, folded. The next source's are on their way while one's are folded.
template <class Element, class Vector, int unroll, class Task>
__device__ void fold_vectors(const Task& task, const Taking<Task>& taking, const Group& group, std::uint64_t offset,
                             std::uint32_t begin, std::uint32_t end) {
  constexpr std::uint32_t step = group_threads * sizeof(Vector);
  const auto load = [&](int source, std::uint32_t i, Vector(&into)[unroll]) {
    const bool own = source == task.rank;
    const std::byte* const from = own ? task.own + offset : taking.slot(source);
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::uint32_t j = i + u * step;
      if (j >= end) continue;
      if constexpr (sizeof(Vector) == 16)
        into[u] = own ? *reinterpret_cast<const Vector*>(from + j) : peek(reinterpret_cast<const Vector*>(from + j));
      else
        into[u] = load_8(from + j, end - j, own ? task.alignment >= 8 : true);
    }
  };
#pragma unroll 1
  for (std::uint32_t i = begin + group.thread * sizeof(Vector); i < end; i += step * unroll) {
    Row<Element, Vector> folded[unroll];
    Vector next[unroll]{};
    load(0, i, next);
#pragma unroll 1
    for (int source = 0; source < task.ranks; ++source) {
      Vector data[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) data[u] = next[u];
      if (source + 1 < task.ranks) load(source + 1, i, next);
      if (source == task.rank && task.scales)
#pragma unroll
        for (int u = 0; u < unroll; ++u) data[u] = multiplied<Element>(task, data[u]);
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const auto row = Row<Element, Vector>::load(data[u]);
        if (source == 0)
          folded[u] = row;
        else
          folded[u].fold(static_cast<Operation>(task.op), row);
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::uint32_t j = i + u * step;
      if (j >= end) continue;
      if (task.divides != 0) folded[u].divide(task.divides);
      std::byte* const to = task.target + offset + j;
      if constexpr (sizeof(Vector) == 16)
        *reinterpret_cast<Vector*>(to) = folded[u].store();
      else
        store_8(to, folded[u].store(), end - j, task.alignment >= 8);
    }
  }
}

template <class Element, class Task>
__device__ void take_and_fold(const Task& task, LargeShared& shared, const Group& group) {
  const Piece piece{nullptr, task.own_bytes};  // every source's is like it
  const std::uint32_t lane = first_lane() + static_cast<std::uint32_t>(group.lane);
  Taking<Task> taking(task, shared, group);
#pragma unroll 1
  for (std::uint32_t round = 0;; ++round) {
    const auto [offset, bytes] = chunk_of(piece, task.take_cut(0), lane, round);
    if (bytes == 0) break;
    if (!taking.wait()) return;
    const std::uint32_t whole = task.alignment == 16 ? bytes / 16 * 16 : 0;
    constexpr int unroll = sizeof(typename Element::Stored) == 1 ? 2 : 4;  // what the registers hold
    fold_vectors<Element, uint4, unroll>(task, taking, group, offset, 0, whole);
    if (whole < bytes) fold_vectors<Element, uint2, 1>(task, taking, group, offset, whole, bytes);
    taking.free();
  }
  taking.count();
}

// One chunk, from the rank's own memory or from its window.
template <class Element>
__device__ void copy_chunk(const Terms& terms, const Group& group, std::byte* to, const std::byte* from,
                           std::uint32_t bytes, bool own) {
  constexpr int unroll = 8;
  constexpr std::uint32_t step = group_threads * 16;
  const std::uint32_t whole = terms.alignment == 16 ? bytes / 16 * 16 : 0;
#pragma unroll 1
  for (std::uint32_t i = group.thread * 16; i < whole; i += step * unroll) {
    uint4 data[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t j = i + u * step; j < whole) {
        const auto* const vector = reinterpret_cast<const uint4*>(from + j);
        data[u] = own ? scaled<Element>(terms, *vector) : peek(vector);
      }
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t j = i + u * step; j < whole) *reinterpret_cast<uint4*>(to + j) = data[u];
  }
#pragma unroll 1
  for (std::uint32_t i = whole + group.thread * 8; i < bytes; i += group_threads * 8) {
    uint2 data = load_8(from + i, bytes - i, own ? terms.alignment >= 8 : true);
    if (own) data = scaled<Element>(terms, data);
    store_8(to + i, data, bytes - i, terms.alignment >= 8);
  }
}

template <class Element, class Task>
__device__ void take_and_copy(const Task& task, LargeShared& shared, const Group& group) {
  const std::uint32_t lane = first_lane() + static_cast<std::uint32_t>(group.lane);
  // The rank's own piece waits for nobody: a part of it after each chunk, so that both are done at the same time.
  const std::uint64_t own_step = std::uint64_t{gridDim.x} * lanes_in_block * largest_chunk;
  std::uint64_t own = lane * largest_chunk;
  const auto copy_own = [&] {
    if (own >= task.own_bytes) return;
    copy_chunk<Element>(task, group, task.target + own, task.own + own,
                        static_cast<std::uint32_t>(min(task.own_bytes - own, std::uint64_t{largest_chunk})), true);
    own += own_step;
  };
  Taking<Task> taking(task, shared, group);
#pragma unroll 1
  for (;;) {
    bool more = false;
#pragma unroll 1
    for (int source = 0; source < task.ranks; ++source) more = more || taking.chunk(source).bytes != 0;
    if (!more) break;
    if (!taking.wait()) return;
#pragma unroll 1
    for (int source = 0; source < task.ranks; ++source) {
      const auto [offset, bytes] = taking.chunk(source);
      if (bytes != 0)
        copy_chunk<Element>(task, group, task.take(source).data + offset, taking.slot(source), bytes, false);
    }
    taking.free();
    copy_own();
  }
  taking.count();
#pragma unroll 1
  while (own < task.own_bytes) copy_own();
}

template <class Element, class Task>
__global__ void __launch_bounds__(giving_threads + lanes_in_block * group_threads, 1)
    exchange_large(const __grid_constant__ Task task) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<LargeShared*>(memory);
  WindowWords& mine = words(task.windows[task.rank]);
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = thread / lanes_in_block;
  const int lane = thread % lanes_in_block;
  wait_for_kernel_before();
  if (rank < task.ranks) {
    shared.chunks_given[rank][lane] = peek(&mine.chunks_given[rank][first_lane() + lane]);
    shared.chunks_taken[rank][lane] = peek(&mine.chunks_taken[rank][first_lane() + lane]);
  }
  if (thread < lanes_in_block) {
    shared.read[thread] = 0;
    shared.taking_failed[thread] = false;
  }
  const WarpNumbers numbers(task);
  if (thread < task.ranks) shared.numbers[thread] = {numbers.given(), numbers.taken()};
  if (thread == 0) {
    shared.failed = false;
    shared.giving_failed = false;
    shared.arrived = 0;
    shared.announced = 0;
    shared.given_all = false;
  }
  if (blockIdx.x == 0 && thread / 32 == 3) tell_peers(task, numbers);
  __syncthreads();

  if (thread >= giving_threads) {
    const Group group{(thread - giving_threads) / group_threads, (thread - giving_threads) % group_threads};
    if (task.folds)
      take_and_fold<Element>(task, shared, group);
    else
      take_and_copy<Element>(task, shared, group);
  } else {
#if __CUDA_ARCH__ >= 900
    if (task.alignment == 16 && !task.scales) {
      if (thread == 0) {
        if (task.chunk_bytes() > largest_short_chunk)
          give_by_bulk_copies<LongChunks>(task, shared);
        else
          give_by_bulk_copies<ShortChunks>(task, shared);
      }
      if (thread == 32) announce_arrivals(shared);
    } else {
      give_by_threads<Element>(task, shared);
    }
#else
    give_by_threads<Element>(task, shared);
#endif
    if (blockIdx.x == 0 && thread / 32 == 3) compare_calls(task, numbers);
  }
  __syncthreads();
  // After an alarm the communicator has ended, and its numbers are of no use.
  if (rank < task.ranks) {
    post(&mine.chunks_given[rank][first_lane() + lane], shared.chunks_given[rank][lane]);
    post(&mine.chunks_taken[rank][first_lane() + lane], shared.chunks_taken[rank][lane]);
  }
  move_on(task, numbers);
}

}  // namespace paceline::cuda
