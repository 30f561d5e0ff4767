// Where the host's copies of buffers on GPUs lie: found before any GPU is asked for.
#include "comm/host_copies.h"

#include <doctest/doctest.h>

#include <vector>

namespace paceline {
namespace {

// Stands for memory of a GPU: nobody looks into it.
alignas(64) std::byte gpu[1 << 16];

Request call(Collective which, const std::byte* send, std::byte* recv, std::size_t count, DataType type) {
  return {.which = which, .send = send, .recv = recv, .count = count, .type = type};
}

std::vector<Request> on_host(HostCopies& copies) {
  REQUIRE(copies.reserve().ok());
  std::vector<Request> all;
  for (std::size_t i = 0; i < copies.size(); ++i) all.push_back(copies.on_host(i));
  return all;
}

TEST_CASE("what a call writes and a later one reads is one copy") {
  HostCopies copies;
  copies.add(call(Collective::all_reduce, gpu, gpu + 4000, 100, DataType::float32), nullptr, 0, 2);
  copies.add(call(Collective::all_gather, gpu + 4000, gpu + 8000, 100, DataType::float32), nullptr, 0, 2);
  copies.add(call(Collective::recv, nullptr, gpu + 8400, 50, DataType::float32), nullptr, 0, 2);
  const auto calls = on_host(copies);
  CHECK(calls[0].recv == calls[1].send);
  CHECK(calls[0].send != calls[1].send);
  CHECK(calls[2].recv == calls[1].recv + 400);
  CHECK(calls[2].send == nullptr);
}

TEST_CASE("a call in place stays in place, also where its parts are found in a larger buffer") {
  HostCopies copies;
  copies.add(call(Collective::all_gather, gpu + 100, gpu, 25, DataType::float32), nullptr, 1, 4);
  copies.add(call(Collective::all_reduce, gpu + 64, gpu + 64, 4, DataType::float64), nullptr, 1, 4);
  const auto calls = on_host(copies);
  CHECK(is_in_place(calls[0], 1));
  CHECK(is_in_place(calls[1], 1));
  CHECK(calls[1].recv == calls[0].recv + 64);
}

TEST_CASE("buffers that only touch have copies of their own, aligned as they are") {
  HostCopies copies;
  copies.add(call(Collective::all_reduce, gpu + 4, gpu + 8, 1, DataType::float32), nullptr, 0, 2);
  copies.add(call(Collective::broadcast, gpu + 24, gpu + 24, 3, DataType::float64), nullptr, 0, 2);
  for (const Request& each : on_host(copies)) {
    const auto address = reinterpret_cast<std::uintptr_t>(each.recv);
    CHECK(address % 64 == (each.type == DataType::float32 ? 8 : 24));
  }
}

TEST_CASE("a call of no elements has no copies") {
  HostCopies copies;
  copies.add(call(Collective::all_reduce, gpu, gpu, 0, DataType::float32), nullptr, 0, 2);
  const auto calls = on_host(copies);
  CHECK(calls[0].send == nullptr);
  CHECK(calls[0].recv == nullptr);
}

}  // namespace
}  // namespace paceline
