// Published times of collectives on n ranks with one full-duplex port each, as closed forms, which reach where the
// simulator cannot. It equals those that are exact, and others that stand beside the tests
// (tests/schedule/published_times.h).
//
// M message (bytes), C chunk (bytes), B bandwidth (bytes per us), t_s set-up time of a message (us), n ranks, R bytes
// per us that a rank folds into its own (infinite: at once).
//
// Sources: Awan et al., Parallel Computing 85 (2019); Chu et al., ICPP 2017.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace paceline::closed_forms {

struct Rates {
  double start = 0;                                       // t_s
  double bandwidth = 1;                                   // B
  double fold = std::numeric_limits<double>::infinity();  // R

  [[nodiscard]] double message(double bytes) const { return start + bytes / bandwidth; }
};

inline int log_up(int n, int k) {
  int rounds = 0;
  for (double reached = 1; reached < n; reached *= k) ++rounds;
  return rounds;
}

// Reduction servers: each worker sends M and receives M at once; `servers` share it, each with bandwidth `server`.
inline double reduction_server(double M, int workers, int servers, double server, const Rates& rates) {
  return 2 * rates.start + std::max(M / rates.bandwidth, workers * M / (servers * server));
}

// ---- Several sources: each of m ranks broadcasts M ----

// Cut into chunks that go one after another down a k-nomial tree; one source after another.
inline double knomial_in_chunks(double M, double C, int n, int k, const Rates& rates) {
  return std::ceil(M / C) * log_up(n, k) * rates.message(C);
}
// All at once round a ring, however many: in every step a rank forwards one message, and no two meet on a link.
inline double ring_sources(double M, int n, const Rates& rates) { return (n - 1) * rates.message(M); }

// Streamed multicast: a chunk goes from the GPU to the host over PCIe, then in datagrams of U bytes through the
// network.
struct Multicast {
  double chunk = 512 << 10;  // C, bytes
  double datagram = 4096;    // U, bytes
  double pcie = 12000;       // B_P, bytes per us: what the GPU writes into host memory
  double host = 12500;       // B_H: what the NIC reads from host memory
  double start = 0.05;       // t_s of a datagram, us
  double alpha = 17.5;       // t_o(n) = ln(n) / alpha, us

  // For a message of M bytes: no chunk is longer than it.
  [[nodiscard]] Multicast of(double M) const {
    Multicast fitting = *this;
    fitting.chunk = std::clamp(M, 1.0, chunk);
    return fitting;
  }
  [[nodiscard]] double issue(int n) const { return std::log(n) / alpha; }
  [[nodiscard]] double copy() const { return chunk / pcie; }  // a
  // b: each datagram is issued, the last one too where it is not full
  [[nodiscard]] double cast(int n) const { return std::ceil(chunk / datagram) * (start + issue(n)) + chunk / host; }
};
inline double multicast_streamed(double M, int n, const Multicast& multicast) {
  const Multicast m = multicast.of(M);
  const double a = m.copy();
  const double b = m.cast(n);
  return a + std::max(M / m.chunk - 1, 0.0) * std::max(a, b) + b;
}
// Overlapped: while one source casts, others copy.
inline double multicast_sources(double M, int sources, int n, const Multicast& multicast) {
  const Multicast m = multicast.of(M);
  const double one = multicast_streamed(M, n, m);
  return std::max(one, m.copy() + sources * M / m.chunk * m.cast(n));
}

}  // namespace paceline::closed_forms
