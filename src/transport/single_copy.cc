#include "transport/single_copy.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace paceline {

bool read_remote(pid_t pid, std::uint64_t address, std::byte* target, std::size_t bytes) {
  while (bytes > 0) {
    // The other process's address is a number here; the kernel checks it.
    const iovec local{target, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) return false;
    target += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool is_readable(std::span<const std::byte> memory) {
  if (memory.empty()) return true;
  std::array<std::byte, 2> ends{};
  const auto at = [](const std::byte& byte) { return iovec{const_cast<std::byte*>(&byte), 1}; };
  const iovec local{ends.data(), ends.size()};
  const std::array remote{at(memory.front()), at(memory.back())};
  const ssize_t got = process_vm_readv(getpid(), &local, 1, remote.data(), remote.size(), 0);
  return got == static_cast<ssize_t>(ends.size()) || (got < 0 && errno != EFAULT);
}

ReadProbe::ReadProbe() {
  if (getrandom(&value_, sizeof value_, 0) != sizeof value_) value_ = 0;
}

bool can_read(pid_t pid, const Probe& probe) {
  std::uint64_t value = 0;
  return probe.value != 0 && read_remote(pid, probe.address, reinterpret_cast<std::byte*>(&value), sizeof value) &&
         value == probe.value;
}

}  // namespace paceline
