// What each launcher tells its processes: the table of launch.h, as code.
#pragma once

#include <functional>
#include <string>

#include "base/configuration.h"
#include "base/status.h"

namespace paceline {

inline constexpr int largest_port = 65535;

struct Launch {
  std::string launcher;  // for messages
  int rank = 0;
  int size = 1;
  std::string host;       // of rank 0; empty: not told
  int port = 0;           // more than the largest: torchrun's leaves none
  bool one_node = false;  // all ranks are known to be on this machine
  std::string job;        // the same on all ranks of the job, and of no other job that runs on this machine now
};

using Environment = std::function<const char*(const char* variable)>;

// Launchers inside launchers: the innermost that says a rank counts. None: one rank.
Result<Launch> find_launch(const Configuration& configuration, const Environment& environment);

// "host:port", "[::1]:29500".
Status split_address(const std::string& text, std::string& host, int& port);
// The first of a Slurm node list: "node[01-04,07],x3" -> "node01".
std::string first_host(const std::string& node_list);

}  // namespace paceline
