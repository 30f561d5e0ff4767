// Every environment variable that Paceline reads, in one table: configuration.cc holds the rows, which also print
// their documentation (`paceline doctor`, docs/configuration.md). Read once, when the library is first used.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace paceline {

// More than any CPU's cache by far.
inline constexpr std::size_t largest_staging = std::size_t{1} << 30;

inline constexpr int least_gpu_blocks = 4;  // so that each message of a group has a warp
inline constexpr int most_gpu_blocks = 64;

struct Configuration {
  // Launching
  int rank = -1;  // -1: by the launcher's variables
  int size = -1;
  std::string address;  // host:port of rank 0
  std::string secret;
  std::string secret_file;
  std::string interface;
  double join_timeout = 60;  // s
  // Running
  double timeout = 300;              // s
  std::string algorithm;             // empty: chosen
  std::size_t chunk = 0;             // bytes; 0: chosen
  std::string transport = "auto";    // or shm, tcp
  std::string tuning;                // path of the profile, or off; empty: in the user's cache
  std::string topology;              // path; empty: none is known
  std::string single_copy = "auto";  // or on, off
  std::string gpu_direct = "auto";   // or off
  int gpu_blocks = 32;
  double spin = 20;          // us
  std::size_t staging = 0;   // bytes a rank and channel; 0: chosen
  std::string log = "warn";  // or info, debug

  bool operator==(const Configuration&) const = default;
};

struct ConfigurationRow {
  std::string_view variable;
  std::string_view type;      // with its unit
  std::string_view fallback;  // the field's default, as a user would write it
  std::string_view help;
};

std::vector<ConfigurationRow> configuration_rows();

// Variables of the environment that are nearly one of these, for each a sentence: now, and when the configuration was
// read.
std::vector<std::string> misspelt_variables();
const std::vector<std::string>& misspelt_at_start();

// The process's configuration. A value that cannot be read counts as the default; configuration_status() says so.
const Configuration& configuration();
const Status& configuration_status();

// For tests: read the environment as the first use does.
Status read_configuration(Configuration& into);

}  // namespace paceline
