// Single copy: reading another process's memory without staging (process_vm_readv).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace paceline {

// Copy `bytes` at `address` of process `pid` to `target`. False with errno where the kernel refuses.
bool read_remote(pid_t pid, std::uint64_t address, std::byte* target, std::size_t bytes);

// A value that lies somewhere in this process, for others to try to read.
struct Probe {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};
Probe make_probe();
// Whether this process can read that one.
bool can_read(pid_t pid, const Probe& probe);

}  // namespace paceline
