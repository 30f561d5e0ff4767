// The published times of collectives on n ranks with one full-duplex port each, as closed forms: what the simulator
// equals where they are exact (closed_forms_test.cc). Those that predictions go by are in
// tuning/prediction/closed_forms.h.
//
// M message (bytes), C chunk (bytes), B bandwidth (bytes per us), t_s set-up time of a message (us), n ranks, R bytes
// per us that a rank folds into its own (infinite: at once).
//
// Sources: Awan et al., Parallel Computing 85 (2019); Chu et al., ICPP 2017; Patarasuk and Yuan, J. Parallel Distrib.
// Comput. 69 (2009); Rabenseifner, ICCS 2004; Sanders, Speck and Traeff, Parallel Computing 35 (2009).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "tuning/prediction/closed_forms.h"

namespace paceline::closed_forms {

inline int log2_up(int n) { return n < 2 ? 0 : static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1))); }

// ---- Broadcast ----

// The root sends to each rank in turn, and a chain in which each rank forwards the whole message.
inline double direct(double M, int n, const Rates& rates) { return (n - 1) * rates.message(M); }
inline double chain(double M, int n, const Rates& rates) { return (n - 1) * rates.message(M); }

// A holder serves k-1 children a round. Exact on one port for n a power of k; published without the factor k-1, which
// is right for k = 2 only.
inline double knomial(double M, int n, int k, const Rates& rates) { return (k - 1) * log_up(n, k) * rates.message(M); }

// n a power of two: the scatter halves what it sends.
inline double scatter_ring(double M, int n, const Rates& rates) {
  return (log2_up(n) + n - 1) * rates.start + 2.0 * (n - 1) / n * M / rates.bandwidth;
}
inline double scatter_doubling(double M, int n, const Rates& rates) {
  return 2 * log2_up(n) * rates.start + 2.0 * (n - 1) / n * M / rates.bandwidth;
}

inline double pipelined_chain(double M, double C, int n, const Rates& rates) {
  return n < 2 ? 0 : (std::ceil(M / C) + n - 2) * rates.message(C);
}
// The best chunk, and the time with it where it divides M.
inline double pipelined_chain_chunk(double M, int n, const Rates& rates) {
  return n <= 2 ? M : std::min(M, std::sqrt(M * rates.start * rates.bandwidth / (n - 2)));
}
inline double pipelined_chain_best(double M, int n, const Rates& rates) {
  const double root = std::sqrt(M / rates.bandwidth) + std::sqrt((n - 2) * rates.start);
  return root * root;
}
// NCCL's ring broadcast in S pieces: the pipelined chain without set-up times.
inline double ring_broadcast(double M, int pieces, int n, const Rates& rates) {
  return (pieces + n - 2) * M / (pieces * rates.bandwidth);
}

// Staging in the host: down over PCIe, X between hosts, and back up where receivers cannot be written directly.
inline double staged(double M, double pcie, double between_hosts, bool back_up) {
  return (back_up ? 2 : 1) * M / pcie + between_hosts;
}

// ---- Reductions ----

// n chunks, each rank sends 2 M (n-1)/n.
inline double ring_all_reduce(double M, int n, const Rates& rates) {
  return 2 * (n - 1) * rates.message(M / n) + (n - 1) * M / n / rates.fold;
}
// n a power of two.
inline double rabenseifner(double M, int n, const Rates& rates) {
  return 2 * log2_up(n) * rates.start + (n - 1) * (2 * M / n / rates.bandwidth + M / n / rates.fold);
}
// Reduce to a master and broadcast from it, both directly: each other rank's M goes in and out of the master.
inline double master_all_reduce(double M, int n, const Rates& rates) {
  return 2 * rates.start + 2 * (n - 1) * M / rates.bandwidth;
}
// Two trees, each with half of the message in chunks. A rank that is inner in one of them and a leaf in the other sends
// four messages for each pair of chunks (one up and two down, one up): the pace of the whole, to which the filling of
// the trees comes. Published as 2 log2 n (t_s + C/B) + 2 M/B.
inline double double_tree_pace(double M, double C, int n, const Rates& rates) {
  return (n > 2 ? 4 : 2) * std::ceil(M / 2 / C) * rates.message(C);
}

// ---- Multicast ----

// The NIC reads GPU memory, `gpu` bytes per us.
inline double multicast_naive(double M, int n, double gpu, const Multicast& m) {
  return M / m.datagram * (m.start + m.issue(n) + m.datagram / gpu);
}

}  // namespace paceline::closed_forms
