// A process that gets no more memory or threads, as where a container limits them.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <system_error>
#include <thread>

namespace paceline::testing {

// From now on this process gets so many bytes of addresses more.
inline bool limit_addresses(std::size_t more_bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * static_cast<std::size_t>(getpagesize()) + more_bytes, RLIM_INFINITY};
  return pages != 0 && setrlimit(RLIMIT_AS, &limit) == 0;
}

// From now on this process starts no more threads: those that still can be sleep, for the stacks of ended ones are
// kept.
inline bool use_up_threads() {
  constexpr std::size_t less_than_a_stack = std::size_t{4} << 20;
  if (!limit_addresses(less_than_a_stack)) return false;
  try {
    for (;;) std::thread(::pause).detach();
  } catch (const std::system_error&) {
    return true;
  }
}

}  // namespace paceline::testing
