/* Heat in a square plate, the same on any number of ranks: halos by send and recv, the residual by all-reduce.
 *
 *     1 1 1 1 1 1     row 0, an edge
 *     0 . . . . 0     rows 1 to n are divided among the ranks; each has one row more on either side of its own,
 *     0 . . . . 0     the halo: the edge, or a copy of the neighbour's row
 *     0 0 0 0 0 0     row n + 1
 *
 * An iteration (Jacobi's) makes each of the n x n points inside the mean of its four neighbours, until none changes by
 * more than TOLERANCE. By symmetry the mean of all points comes to 1/4.
 *
 *   P=$(python -c 'import paceline; print(paceline.__path__[0])')
 *   gcc -std=c99 -O2 examples/jacobi.c -o jacobi -I$P/include -L$P/lib -lpaceline -Wl,-rpath,$P/lib
 *   ./jacobi                              one rank
 *   paceline run -n 4 -- ./jacobi 50      four, 50 x 50 points
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "paceline/paceline.h"

#define TOLERANCE 1e-8
#define ITERATIONS_BETWEEN_CHECKS 10

#define CHECK(call) check(call, #call)

/* Calls of the other ranks then end with an error that names this one. */
static void check(paceResult_t result, const char* call) {
  if (result == paceSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", call, paceGetErrorString(result), paceGetLastError(NULL));
  exit(EXIT_FAILURE);
}

static void* zeros(size_t count, size_t bytes) {
  void* memory = calloc(count, bytes);
  if (memory != NULL) return memory;
  fprintf(stderr, "no memory for %zu x %zu bytes\n", count, bytes);
  exit(EXIT_FAILURE);
}

/* The first n % size ranks have one row more than the others; with more ranks than rows, the last ones have none. */
static int rows_of(int rank, int size, int n) { return n / size + (rank < n % size); }

/* In a group, where order does not matter: else neighbours that both send first could wait for each other. */
static void exchange_halos(int rank, int size, int n, double (*plate)[n + 2], paceComm_t comm) {
  const int rows = rows_of(rank, size, n), width = n + 2;
  if (rows == 0) return;
  CHECK(paceGroupStart());
  if (rank > 0) {
    CHECK(paceSend(plate[1], width, paceFloat64, rank - 1, comm, NULL));
    CHECK(paceRecv(plate[0], width, paceFloat64, rank - 1, comm, NULL));
  }
  if (rank + 1 < size && rows_of(rank + 1, size, n) > 0) {
    CHECK(paceSend(plate[rows], width, paceFloat64, rank + 1, comm, NULL));
    CHECK(paceRecv(plate[rows + 1], width, paceFloat64, rank + 1, comm, NULL));
  }
  CHECK(paceGroupEnd());
}

/* One iteration on this rank's rows. Returns the greatest change, which is the greatest residual in `from`. */
static double iterate(int rows, int n, double (*from)[n + 2], double (*to)[n + 2]) {
  double greatest = 0;
  for (int i = 1; i <= rows; i++)
    for (int j = 1; j <= n; j++) {
      to[i][j] = (from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]) / 4;
      const double change = fabs(to[i][j] - from[i][j]);
      if (change > greatest) greatest = change;
    }
  return greatest;
}

/* Writes all rows to `whole` on rank 0. paceGather and paceAllGather take the same count from every rank; there is none
 * with uneven counts. A group of messages does it, in which all go together. */
static void gather_rows(int rank, int size, int n, double (*mine)[n + 2], double (*whole)[n + 2], paceComm_t comm) {
  const size_t rows = rows_of(rank, size, n), width = n + 2;
  CHECK(paceGroupStart());
  if (rank == 0) {
    memcpy(whole, mine, rows * sizeof(*mine));
    size_t first = rows;
    for (int peer = 1; peer < size; peer++) {
      const size_t theirs = rows_of(peer, size, n);
      if (theirs > 0) CHECK(paceRecv(whole + first, theirs * width, paceFloat64, peer, comm, NULL));
      first += theirs;
    }
  } else if (rows > 0) {
    CHECK(paceSend(mine, rows * width, paceFloat64, 0, comm, NULL));
  }
  CHECK(paceGroupEnd());
}

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 50;
  if (n < 1 || n > 10000) {
    fprintf(stderr, "usage: %s [POINTS], from 1 to 10000 in each direction\n", argv[0]);
    return EXIT_FAILURE;
  }
  paceComm_t comm = NULL;
  int rank = 0, size = 0;
  CHECK(paceCommInitEnvironment(&comm, NULL));
  CHECK(paceCommUserRank(comm, &rank));
  CHECK(paceCommCount(comm, &size));

  const int rows = rows_of(rank, size, n);
  double(*now)[n + 2] = zeros(rows + 2, sizeof(*now)), (*next)[n + 2] = zeros(rows + 2, sizeof(*next));
  if (rank == 0)
    for (int j = 0; j < n + 2; j++) now[0][j] = next[0][j] = 1;

  int iterations = 0;
  double residual = 0;
  do {
    for (int i = 0; i < ITERATIONS_BETWEEN_CHECKS; i++) {
      exchange_halos(rank, size, n, now, comm);
      residual = iterate(rows, n, now, next);
      double(*const swapped)[n + 2] = now;
      now = next;
      next = swapped;
    }
    iterations += ITERATIONS_BETWEEN_CHECKS;
    CHECK(paceAllReduce(&residual, &residual, 1, paceFloat64, paceMax, comm, NULL)); /* all ranks stop together */
  } while (residual > TOLERANCE);

  double(*whole)[n + 2] = rank == 0 ? zeros(n, sizeof(*whole)) : NULL;
  gather_rows(rank, size, n, now + 1, whole, comm);
  if (rank == 0) {
    double sum = 0, checksum = 0; /* row by row, whoever had them: the same bits for any number of ranks */
    for (int i = 0; i < n; i++)
      for (int j = 1; j <= n; j++) {
        sum += whole[i][j];
        checksum += (i + 1) * whole[i][j];
      }
    printf("ranks %d\niterations %d\nresidual %.3e\n", size, iterations, residual);
    printf("mean %.9f\nchecksum %.15g\n", sum / n / n, checksum);
  }
  free(whole);
  free(next);
  free(now);
  CHECK(paceCommDestroy(comm));
  return EXIT_SUCCESS;
}
