// How much memory a test takes.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace paceline::testing {

// The most of this process that has been in memory at once since this was made; where the kernel does not let it begin
// anew, since the process began. 0: unknown.
class PeakMemory {
 public:
  PeakMemory() { std::ofstream("/proc/self/clear_refs") << 5; }
  [[nodiscard]] std::size_t bytes() const {
    std::ifstream status("/proc/self/status");
    std::size_t kibibytes = 0;
    for (std::string word; status >> word;)
      if (word == "VmHWM:" && status >> kibibytes) break;
    return kibibytes << 10;
  }
};

}  // namespace paceline::testing
