// Tests with the stand-in for the CUDA driver (tests/nccl/fake_cuda.cc, fake_memory.cc). Each runs in a process of its
// own: the driver stays loaded there.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <iostream>
#include <map>

#include "transport/child.h"

namespace paceline::testing {

inline constexpr std::uint64_t fake_granularity = std::uint64_t{1} << 21;

class FakeDriver {
 public:
  FakeDriver() : library_(::dlopen(PACELINE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE(library_ != nullptr);
    REQUIRE(call("cuDevicePrimaryCtxRetain", &context_, 0) == 0);
    REQUIRE(call("cuCtxSetCurrent", context_) == 0);
  }

  // For other threads to make current.
  [[nodiscard]] void* context() const { return context_; }

  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    auto* const function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    REQUIRE(static_cast<bool>(function));
    return function(arguments...);
  }
  // What was made and not given back.
  [[nodiscard]] int objects() const { return call("fake_cuda_objects"); }

 private:
  void* library_;
  void* context_ = nullptr;
};

// GPU memory as a program maps it: a reserved range, and pieces that come and go.
class FakeRange {
 public:
  FakeRange(const FakeDriver& driver, std::uint64_t bytes) : driver_(driver), bytes_(bytes) {
    REQUIRE(driver_.call("cuMemAddressReserve", &base_, bytes, std::uint64_t{0}, std::uint64_t{0}, 0ULL) == 0);
  }
  ~FakeRange() {
    while (!pieces_.empty()) unmap(pieces_.begin()->first);
    driver_.call("cuMemAddressFree", base_, bytes_);
  }
  FakeRange(const FakeRange&) = delete;
  FakeRange& operator=(const FakeRange&) = delete;

  // New memory of a GPU. types: of handles that it can be shared by; 1: descriptor, 8: fabric.
  void map(std::uint64_t offset, std::uint64_t bytes, unsigned types = 1, int device = 0) {
    struct {
      int type = 1;
      unsigned types;
      int location_type = 1;
      int location;
      char rest[64] = {};
    } properties{.types = types, .location = device};
    std::uint64_t handle = 0;
    REQUIRE(driver_.call("cuMemCreate", &handle, bytes, &properties, 0ULL) == 0);
    REQUIRE(driver_.call("cuMemMap", base_ + offset, bytes, std::uint64_t{0}, handle, 0ULL) == 0);
    REQUIRE(driver_.call("cuMemRelease", handle) == 0);
    const struct {
      int location_type = 1;
      int location = 0;
      int flags = 3;
    } access;
    REQUIRE(driver_.call("cuMemSetAccess", base_ + offset, bytes, &access, std::uint64_t{1}) == 0);
    pieces_[offset] = bytes;
  }
  void unmap(std::uint64_t offset) {
    REQUIRE(driver_.call("cuMemUnmap", base_ + offset, pieces_.at(offset)) == 0);
    pieces_.erase(offset);
  }
  [[nodiscard]] std::byte* at(std::uint64_t offset) const { return reinterpret_cast<std::byte*>(base_ + offset); }

 private:
  const FakeDriver& driver_;
  std::uint64_t base_ = 0;
  std::uint64_t bytes_;
  std::map<std::uint64_t, std::uint64_t> pieces_;
};

// Runs body(driver) in a child that has the driver; what it requires is told as in any test.
template <class Body>
void with_fake_driver(const Body& body) {
  std::cout.flush();  // the child has a copy
  Child child([&] {
    bool good = false;
    try {
      const FakeDriver driver;
      body(driver);
      good = true;
    } catch (...) {  // a requirement, which doctest has told
    }
    std::cout.flush();
    return good;
  });
  CHECK(child.ended_well());
}

}  // namespace paceline::testing
