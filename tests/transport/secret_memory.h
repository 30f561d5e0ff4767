// Memory that no other process can read.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <span>

#include "base/file_descriptor.h"

namespace paceline::testing {

class SecretMemory {
 public:
  explicit SecretMemory(std::size_t bytes) : bytes_(bytes) {
    const FileDescriptor file(static_cast<int>(::syscall(SYS_memfd_secret, 0)));
    if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return;
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped != MAP_FAILED) memory_ = static_cast<std::byte*>(mapped);
  }
  ~SecretMemory() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  SecretMemory(const SecretMemory&) = delete;
  SecretMemory& operator=(const SecretMemory&) = delete;

  // Empty where the kernel gives none.
  [[nodiscard]] std::span<std::byte> span() const { return {memory_, memory_ == nullptr ? 0 : bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* memory_ = nullptr;
};

}  // namespace paceline::testing
