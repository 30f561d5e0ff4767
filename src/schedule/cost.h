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
  std::size_t element = 4;        // bytes of one element of the problem
  std::size_t largest_chunk = 128 << 10;  // bytes that one message may carry on this communicator

  // One message of so many bytes, alone on its way.
  [[nodiscard]] double message(double bytes) const { return start + switching + bytes * sharing / bandwidth; }
  // The same, folded into the receiver's data.
  [[nodiscard]] double reduction(double bytes) const {
    return message(bytes) + bytes * sharing / reduce_bandwidth;
  }
};

}  // namespace paceline
