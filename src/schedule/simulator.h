// The simulator: how long schedules take on a topology that need not be here.
//
// Discrete events. Each rank takes the steps of a channel in their order. A send hands its message to a port and goes
// on, as long as fewer than capacity(n) messages of the channel are under way; the others wait for what they receive. A
// port carries one message after the other: `start` us during which no bytes flow, then the bytes, over all links of
// their way at once. A connection with several ways has a port for each, which carries its parts of the messages. Links
// are full duplex and shared max-min fairly between the messages that are on them at the same time; a link's latency
// delays what it carries and holds up nothing else.
//
// With one port a rank this is the model of the published formulas (tests/schedule/published_times.h), which come out
// exactly.
//
// Times in microseconds, rates in bytes per microsecond, links' bandwidths in GB/s (1 GB/s = 1000 bytes/us).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "base/status.h"
#include "schedule/timeline.h"
#include "schedule/traffic.h"
#include "topology/way_finder.h"

namespace paceline {

// Which messages of a GPU wait for one another.
enum class Ports : std::uint8_t {
  one,         // all of them: a GPU sends to one other at a time
  connections  // those to one rank on one channel
};

// What ranks' actions take beside the links.
struct Machine {
  static constexpr double at_once = std::numeric_limits<double>::infinity();

  double start = 0;                   // t_s: us that a message holds its port before its bytes flow
  double delay = 0;                   // us that a message arrives later for it, beside its links' latency
  double step = 0;                    // us that each step holds its channel
  double send_bandwidth = at_once;    // bytes per us at which a rank itself copies what it sends,
  double take_bandwidth = at_once;    // what it has received,
  double reduce_bandwidth = at_once;  // folds it into its own
  double copy_bandwidth = at_once;    // and copies from one of its buffers to another
  Ports ports = Ports::one;
  bool multicast = false;  // a message to several ranks passes each link once
  // Stragglers: how many times as long everything above takes on a GPU, and how many times as long bytes on a link; at
  // most `slowest` times, and no less than one part in so many.
  static constexpr double slowest = 1e6;
  std::map<int, double> slow_gpus = {};
  std::map<int, double> slow_links = {};
};

struct Simulation {
  double time = 0;                 // us, when the last rank has taken its last step
  std::vector<double> ends;        // of each collective
  std::vector<double> link_bytes;  // by link of the topology
  std::vector<double> link_peaks;  // by link: its largest load, as a part of its bandwidth; never above 1
  std::uint64_t messages = 0;
  std::vector<Deed> timeline;  // if asked for
};

// Errors (invalid_argument): stragglers that the topology does not have, or slower or faster than Machine allows.
Status check_stragglers(const Topology& topology, const Machine& machine);

// Programs of fewer ranks than `ranks` are those of the first ones; all others do the same, shifted (same_shifted()).
// The way finder must then be folded, and link_bytes are those of one part's links.
// Errors: invalid_argument for ranks on GPUs that do not exist, what check_stragglers() finds, and steps that wait for
// ever; unsupported where a rank sends to one to whose GPU there is no way; internal: a link was loaded above its
// bandwidth, which would be a defect of the simulator.
Result<Simulation> simulate(WayFinder& finder, std::span<const Traffic> traffic, const Machine& machine,
                            bool with_timeline = false);

}  // namespace paceline
