/* Paceline's collectives under timing.h's clock. Rank, size, address and secret come from the environment. */
#include <paceline/paceline.h>

#include "timing.h"

static paceComm_t comm;

static void check(paceResult_t result) {
  if (result == paceSuccess) return;
  fprintf(stderr, "rank %d: %s: %s\n", my_rank, paceGetErrorString(result), paceGetLastError(comm));
  exit(1);
}

static void run_barrier(void) { check(paceBarrier(comm, NULL)); }

static void maximum_over_ranks(double* values, int count) {
  check(paceAllReduce(values, values, (size_t)count, paceFloat64, paceMax, comm, NULL));
}

static void ping_pong(float* send, float* recv, size_t count) {
  if (my_rank == 0) {
    check(paceSend(send, count, paceFloat32, 1, comm, NULL));
    check(paceRecv(recv, count, paceFloat32, 1, comm, NULL));
  } else if (my_rank == 1) {
    check(paceRecv(recv, count, paceFloat32, 0, comm, NULL));
    check(paceSend(send, count, paceFloat32, 0, comm, NULL));
  }
}

static void run_collective(enum collective collective, float* send, float* recv, size_t n) {
  switch (collective) {
    case ALL_REDUCE: check(paceAllReduce(send, recv, n, paceFloat32, paceSum, comm, NULL)); break;
    /* In place on the root, as MPI_Bcast is. */
    case BROADCAST: check(paceBroadcast(send, my_rank == 0 ? send : recv, n, paceFloat32, 0, comm, NULL)); break;
    case REDUCE: check(paceReduce(send, recv, n, paceFloat32, paceSum, 0, comm, NULL)); break;
    case ALL_GATHER: check(paceAllGather(send, recv, n, paceFloat32, comm, NULL)); break;
    case REDUCE_SCATTER: check(paceReduceScatter(send, recv, n, paceFloat32, paceSum, comm, NULL)); break;
    case GATHER: check(paceGather(send, recv, n, paceFloat32, 0, comm, NULL)); break;
    case SCATTER: check(paceScatter(send, recv, n, paceFloat32, 0, comm, NULL)); break;
    case ALL_TO_ALL: check(paceAllToAll(send, recv, n, paceFloat32, comm, NULL)); break;
    case SEND_RECV: ping_pong(send, recv, n); break;
    default: break;
  }
}

static void* allocate_shared(size_t bytes) {
  void* memory = NULL;
  check(paceMemAlloc(&memory, bytes)); /* whose pages are all there */
  return memory;
}

static void free_shared(void* memory) { check(paceMemFree(memory)); }

int main(int argc, char** argv) {
  if (getenv("BENCH_MEMALLOC") != NULL) {
    allocate_buffer = allocate_shared;
    free_buffer = free_shared;
  }
  check(paceCommInitEnvironment(&comm, NULL));
  check(paceCommUserRank(comm, &my_rank));
  check(paceCommCount(comm, &rank_count));
  const int status = measure(argc, argv);
  check(paceCommDestroy(comm));
  return status;
}
