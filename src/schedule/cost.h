// The constants that cost formulas are written in (SYSTEMS.md): what a message costs on this communicator.
//
// Times in microseconds, sizes in bytes, rates in bytes per microsecond (1 GB/s = 1000 bytes/us).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace paceline {

struct CostModel {
  double start = 0.5;             // t_s: one message from one rank to the next, without its bytes
  double step = 0.05;             // what one more step costs the rank that takes it
  double bandwidth = 10000;       // B: bytes per us that one rank moves to another
  double reduce_bandwidth = 8000; // bytes per us that one rank folds into its own
  double copy_bandwidth = 10000;  // bytes per us of a local copy
  double sharing = 1;             // ranks that take turns on one CPU: CPU work takes this much longer
  double switching = 0;           // us for a turn of the others, waited for at each dependent step when sharing > 1
  double multicast_share = 0;     // what each further receiver of one message costs its sender, as a share of the first:
                                  // 0 in shared memory, 1 over TCP
  std::size_t element = 4;        // bytes of one element of the problem
  std::size_t largest_chunk = 128 << 10;  // bytes that one message may carry on this communicator

  // One message of so many bytes, alone on its way.
  [[nodiscard]] double message(double bytes) const { return start + switching + bytes * sharing / bandwidth; }
  // The same message for several receivers.
  [[nodiscard]] double multicast(double bytes, int receivers) const {
    return message(bytes) + std::max(0, receivers - 1) * multicast_share * stream(bytes, 1);
  }
  // `bytes` in so many messages that follow another one without waiting.
  [[nodiscard]] double stream(double bytes, double messages) const {
    return messages * step + bytes * sharing / bandwidth;
  }
  // `bytes`, cut into chunks, through so many hops, each of which passes a chunk on while it takes the next.
  [[nodiscard]] double pipeline(double bytes, double chunk_bytes, int hops) const {
    const double chunk = std::min(bytes, chunk_bytes);
    const double chunks = bytes > 0 ? std::ceil(bytes / chunk) : 1;
    return hops * message(chunk) + stream(bytes - chunk, chunks - 1);
  }
  // The same, folded into the receiver's data.
  [[nodiscard]] double reduction(double bytes) const {
    return message(bytes) + bytes * sharing / reduce_bandwidth;
  }
};

}  // namespace paceline
