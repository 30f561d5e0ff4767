// Single copy: reading another process's memory without staging (process_vm_readv).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace paceline {

// Copy `bytes` at `address` of process `pid` to `target`. False with errno where the kernel refuses.
bool read_remote(pid_t pid, std::uint64_t address, std::byte* target, std::size_t bytes);

// Whether other processes can read this memory of ours, as far as its first and last byte tell. They cannot read a
// device's, nor that of memfd_secret, though this process can.
bool is_readable(std::span<const std::byte> memory);

// What lies somewhere in a process.
struct Probe {
  std::uint64_t address = 0;
  std::uint64_t value = 0;  // 0: nothing is known to lie there
};

// A random value of this process's, for others to try to read. In containers with pid namespaces of their own the same
// pid is another process on each side, and without address randomization both have the like at the same address: only
// what no other process can hold shows that it was the right one's memory.
class ReadProbe {
 public:
  ReadProbe();
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;

  [[nodiscard]] Probe place() const { return {reinterpret_cast<std::uint64_t>(&value_), value_}; }

 private:
  std::uint64_t value_ = 0;
};

// Whether this process can read that one, and `pid` is the one that showed the probe.
bool can_read(pid_t pid, const Probe& probe);

}  // namespace paceline
