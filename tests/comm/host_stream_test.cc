#include "comm/host_stream.h"

#include <doctest/doctest.h>

#include <latch>

namespace paceline {
namespace {

Status failure(const char* message) { return Status(Code::remote, message); }

TEST_CASE("a wait ends with the calls up to its mark, while a later one still runs") {
  std::latch go(1);
  HostStream stream;
  stream.push([] { return Status(); });
  const std::uint64_t first = stream.mark();
  stream.push([&] {
    go.wait();
    return Status();
  });
  CHECK(stream.wait(first, -1).ok());
  CHECK(stream.wait(stream.mark(), 0.001).code() == Code::in_progress);
  CHECK(stream.query().code() == Code::in_progress);
  go.count_down();
  CHECK(stream.wait(stream.mark(), 1e300).ok());
}

TEST_CASE("a wait tells the first error up to its mark and leaves it for synchronize") {
  HostStream stream;
  stream.push([] { return Status(); });
  const std::uint64_t before = stream.mark();
  stream.push([] { return failure("first"); });
  stream.push([] { return failure("second"); });
  CHECK(stream.wait(stream.mark(), -1).message() == "first");
  CHECK(stream.wait(before, -1).ok());
  CHECK(stream.synchronize().message() == "first");
  CHECK(stream.synchronize().ok());
}

}  // namespace
}  // namespace paceline
