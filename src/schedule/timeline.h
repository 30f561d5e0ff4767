// What ranks did in a simulation, and when.
#pragma once

#include <span>
#include <string>

#include "schedule/traffic.h"

namespace paceline {

// One thing that one rank did, as traces of real runs name it (comm/trace.h): "send", "recv", "copy", "wait",
// "wait for room".
struct Deed {
  const char* name = "";
  int collective = 0;
  int rank = 0;
  int channel = 0;
  int peer = 0;
  double bytes = 0;
  double begin = 0;
  double end = 0;
  bool reduces = false;  // a message that was folded
};

// Chrome's trace format, as `paceline bench --trace` records a real run: pid is the rank, tid the channel.
std::string chrome_trace(std::span<const Deed> timeline, std::span<const Traffic> traffic);

}  // namespace paceline
