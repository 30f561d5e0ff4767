/* The collectives of any MPI under timing.h's clock; compiled for each MPI with its own mpi.h. */
#include <mpi.h>

#include "timing.h"

static void run_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void maximum_over_ranks(double* values, int count) {
  MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void ping_pong(float* send, float* recv, int count) {
  if (my_rank == 0) {
    MPI_Send(send, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(recv, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (my_rank == 1) {
    MPI_Recv(recv, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(send, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  }
}

static void run_collective(enum collective collective, float* send, float* recv, size_t elements) {
  const int n = (int)elements;
  const MPI_Comm world = MPI_COMM_WORLD;
  switch (collective) {
    case ALL_REDUCE: MPI_Allreduce(send, recv, n, MPI_FLOAT, MPI_SUM, world); break;
    case BROADCAST: MPI_Bcast(my_rank == 0 ? send : recv, n, MPI_FLOAT, 0, world); break;
    case REDUCE: MPI_Reduce(send, recv, n, MPI_FLOAT, MPI_SUM, 0, world); break;
    case ALL_GATHER: MPI_Allgather(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(send, recv, n, MPI_FLOAT, MPI_SUM, world); break;
    case GATHER: MPI_Gather(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, 0, world); break;
    case SCATTER: MPI_Scatter(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, 0, world); break;
    case ALL_TO_ALL: MPI_Alltoall(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, world); break;
    case SEND_RECV: ping_pong(send, recv, n); break;
    default: break;
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  const int status = measure(argc, argv);
  MPI_Finalize();
  return status;
}
