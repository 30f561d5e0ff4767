/* How every library is timed, the same for all.
 *
 * For each size: warm up; then, for each timed call, rewrite the send buffer, meet, and read the clock before and after
 * the call on every rank. The slowest rank's time is the call's time. After the last call its result is compared bit
 * for bit with what it must be. Rank 0 prints two lines for each size, in microseconds of each call:
 *
 *   row BYTES WRONG T1 T2 ...      the slowest rank's own time; WRONG elements differ, on the worst rank
 *   span BYTES 0 T1 T2 ...         from the first rank's start to the last rank's end
 *
 * The first is what is compared. Where each rank has a CPU, all of them start at one moment (BENCH_MEETING), whatever
 * the library. With more ranks than CPUs that cannot be: they pass the library's own barrier and leave it one after the
 * other, and their own times may then overlap little; the span shows it. After a long call they pass it once more: who
 * rewrites megabytes at once does so on the CPU of ranks that are in the call still, and would be timed with it.
 *
 * The including file names the library: it defines the functions declared below and calls measure() from main.
 * `bytes` is counted as nccl-tests does: the whole of the gathered or scattered data. Elements are float32 and hold
 * whole numbers below 256, so that every sum is exact in any order.
 */
#ifndef PACELINE_BENCH_TIMING_H_
#define PACELINE_BENCH_TIMING_H_

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum collective {
  ALL_REDUCE,
  BROADCAST,
  REDUCE,
  ALL_GATHER,
  REDUCE_SCATTER,
  GATHER,
  SCATTER,
  ALL_TO_ALL,
  BARRIER,
  SEND_RECV, /* ranks 0 and 1 play ping-pong; half a round trip counts; other ranks wait where all meet */
  COLLECTIVES
};

static const char* const collective_names[COLLECTIVES] = {"all_reduce",     "broadcast", "reduce",  "all_gather",
                                                          "reduce_scatter", "gather",    "scatter", "all_to_all",
                                                          "barrier",        "send_recv"};

/* What the including file defines. Root is rank 0. `count` is the whole for all-reduce, broadcast, reduce and
 * send-recv, one rank's part for the others. */
static void run_collective(enum collective collective, float* send, float* recv, size_t count);
static void run_barrier(void);
/* values[i] = the largest values[i] of any rank. */
static void maximum_over_ranks(double* values, int count);

static int my_rank;
static int rank_count;

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Element `index` of what `rank` sends in call number `call`. */
static inline float element(uint32_t index, uint32_t rank, uint32_t call) {
  return (float)(((index + rank * 7919u + call * 104729u) * 2654435761u) >> 24);
}

static void fill(float* to, size_t count, size_t first, int rank, int call) {
  for (size_t i = 0; i < count; i++) to[i] = element((uint32_t)(first + i), (uint32_t)rank, (uint32_t)call);
}

static void fill_sum(float* to, size_t count, size_t first, int call) {
  memset(to, 0, count * sizeof(float));
  for (int rank = 0; rank < rank_count; rank++)
    for (size_t i = 0; i < count; i++) to[i] += element((uint32_t)(first + i), (uint32_t)rank, (uint32_t)call);
}

static void* allocate(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, bytes + 4096) != 0) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    exit(1);
  }
  memset(memory, 0, bytes); /* so that no timed call takes the page faults */
  return memory;
}

/* From so many bytes on, rewriting the send buffer is longer than a barrier. */
enum { LONG_CALL = 64 << 10 };

/* Where the buffers of calls come from. */
static void* (*allocate_buffer)(size_t bytes) = allocate;
static void (*free_buffer)(void* memory) = free;

/* One rank's part of the data, for the collectives that cut it in parts. */
static int has_parts(enum collective collective) {
  return collective == ALL_GATHER || collective == REDUCE_SCATTER || collective == GATHER || collective == SCATTER ||
         collective == ALL_TO_ALL;
}

/* How many elements this rank sends: `count` as in run_collective. */
static size_t sent(enum collective collective, size_t count) {
  if (collective == BARRIER) return 0;
  if (collective == REDUCE_SCATTER || collective == SCATTER || collective == ALL_TO_ALL)
    return count * (size_t)rank_count;
  return count;
}

/* Write what this rank must have received; returns how many elements, 0 for a rank that receives nothing. */
static size_t fill_expected(float* to, enum collective collective, size_t count, int call) {
  const size_t mine = (size_t)my_rank * count;
  switch (collective) {
    case REDUCE:
      if (my_rank != 0) return 0; /* fall through */
    case ALL_REDUCE: fill_sum(to, count, 0, call); return count;
    case REDUCE_SCATTER: fill_sum(to, count, mine, call); return count;
    case BROADCAST:
      if (my_rank == 0) return 0;
      fill(to, count, 0, 0, call);
      return count;
    case SCATTER: fill(to, count, mine, 0, call); return count;
    case GATHER:
      if (my_rank != 0) return 0; /* fall through */
    case ALL_GATHER:
      for (int rank = 0; rank < rank_count; rank++) fill(to + (size_t)rank * count, count, 0, rank, call);
      return count * (size_t)rank_count;
    case ALL_TO_ALL:
      for (int rank = 0; rank < rank_count; rank++) fill(to + (size_t)rank * count, count, mine, rank, call);
      return count * (size_t)rank_count;
    case SEND_RECV:
      if (my_rank > 1) return 0;
      fill(to, count, 0, 1 - my_rank, call);
      return count;
    default: return 0;
  }
}

/* Shared by all ranks: the file that BENCH_MEETING names, zeros at first. */
struct meeting {
  _Atomic int here;
  _Atomic int held;
  double start; /* by now_us() */
};

static struct meeting* meeting; /* NULL: ranks pass the library's barrier */

static int find_meeting(void) {
  const char* const path = getenv("BENCH_MEETING");
  if (path == NULL) return 1;
  const int file = open(path, O_RDWR);
  void* const page = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (page == MAP_FAILED) {
    perror(path);
    return 0;
  }
  meeting = page;
  return 1;
}

/* Returns on all ranks at the moment that the last one to come has set. */
static void meet(void) {
  if (meeting == NULL) {
    run_barrier();
    return;
  }
  const double time_to_learn_us = 0.5 + 0.25 * rank_count;
  const int held = atomic_load(&meeting->held);
  if (atomic_fetch_add(&meeting->here, 1) + 1 == rank_count) {
    atomic_store(&meeting->here, 0);
    meeting->start = now_us() + time_to_learn_us;
    atomic_store(&meeting->held, held + 1);
  }
  while (atomic_load(&meeting->held) == held) {
  }
  while (now_us() < meeting->start) {
  }
}

struct interval {
  double start;
  double end;
};

static struct interval timed_call(enum collective collective, float* send, float* recv, size_t count, int call) {
  struct interval time;
  fill(send, sent(collective, count), 0, my_rank, call);
  meet();
  time.start = now_us();
  if (collective == BARRIER)
    run_barrier();
  else
    run_collective(collective, send, recv, count);
  time.end = now_us();
  if (meeting == NULL && sent(collective, count) * sizeof(float) >= LONG_CALL) run_barrier();
  return time;
}

/* The time of one call with all that goes around it, the same on every rank: to agree on the number of calls. */
static double agreed_time(enum collective collective, float* send, float* recv, size_t count, int call) {
  double start = now_us();
  timed_call(collective, send, recv, count, call);
  start = now_us() - start;
  maximum_over_ranks(&start, 1);
  return start;
}

static void print_times(const char* kind, size_t bytes, double wrong, const double* times, int calls) {
  printf("%s %zu %.0f", kind, bytes, wrong);
  for (int i = 0; i < calls; i++) printf(" %.2f", times[i]);
  printf("\n");
}

/* At most `limit` calls of `bytes`, fewer (at least 3) where they would last longer than `cap_us`. Returns whether the
 * library is still worth asking for larger sizes: 0 once a single call lasts longer than the cap. */
static int measure_size(enum collective collective, size_t bytes, int limit, double cap_us, float* send, float* recv) {
  size_t count = bytes / sizeof(float);
  if (has_parts(collective)) {
    count /= (size_t)rank_count;
    if (count == 0) count = 1; /* a part is at least one element */
    bytes = count * (size_t)rank_count * sizeof(float);
  }

  int call = 0;
  double one_call = agreed_time(collective, send, recv, count, call++); /* has the set-up of this size in it */
  if (one_call < cap_us) one_call = agreed_time(collective, send, recv, count, call++);
  int calls = limit;
  if ((double)calls * one_call > cap_us) calls = (int)(cap_us / one_call);
  if (calls < 3) calls = 3;
  for (int i = 0; i < calls / 5; i++) timed_call(collective, send, recv, count, call++);

  double* times = allocate((size_t)calls * sizeof(double));
  double* starts = allocate((size_t)calls * sizeof(double));
  double* ends = allocate((size_t)calls * sizeof(double));
  const double share = collective == SEND_RECV ? 0.5 : 1;
  for (int i = 0; i < calls; i++) {
    const struct interval time = timed_call(collective, send, recv, count, call++);
    times[i] = collective == SEND_RECV && my_rank > 1 ? 0 : share * (time.end - time.start);
    starts[i] = -time.start; /* so that the largest is the first rank's */
    ends[i] = time.end;
  }
  maximum_over_ranks(times, calls);
  maximum_over_ranks(starts, calls);
  maximum_over_ranks(ends, calls);
  for (int i = 0; i < calls; i++) ends[i] = share * (ends[i] + starts[i]);

  float* expected = allocate((count * (has_parts(collective) ? (size_t)rank_count : 1)) * sizeof(float));
  const size_t received = fill_expected(expected, collective, count, call - 1);
  double wrong = 0;
  for (size_t i = 0; i < received; i++) wrong += recv[i] != expected[i];
  maximum_over_ranks(&wrong, 1);
  free(expected);

  if (my_rank == 0) {
    print_times("row", bytes, wrong, times, calls);
    print_times("span", bytes, 0, ends, calls);
    fflush(stdout);
  }
  free(ends);
  free(starts);
  free(times);
  return one_call < cap_us;
}

/* Arguments: COLLECTIVE CAP_SECONDS BYTES:CALLS..., sizes ascending. */
static int measure(int argc, char** argv) {
  int collective = 0;
  while (argc > 1 && collective < COLLECTIVES && strcmp(argv[1], collective_names[collective]) != 0) collective++;
  if (argc < 4 || collective == COLLECTIVES) {
    fprintf(stderr, "usage: %s COLLECTIVE CAP_SECONDS BYTES:CALLS...\n", argv[0]);
    return 2;
  }
  if (!find_meeting()) return 2;
  const double cap_us = atof(argv[2]) * 1e6;
  size_t largest = 4096;
  for (int i = 3; i < argc; i++) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    if (bytes > largest) largest = bytes;
  }
  largest += (size_t)rank_count * sizeof(float);
  float* send = allocate_buffer(largest);
  float* recv = allocate_buffer(largest);
  int worth_it = 1;
  for (int i = 3; i < argc && worth_it; i++) {
    char* calls = NULL;
    const size_t bytes = strtoull(argv[i], &calls, 10);
    worth_it =
        measure_size((enum collective)collective, bytes, *calls == ':' ? atoi(calls + 1) : 100, cap_us, send, recv);
  }
  free_buffer(recv);
  free_buffer(send);
  return 0;
}

#endif /* PACELINE_BENCH_TIMING_H_ */
