#include "base/call.h"

#include <doctest/doctest.h>

using namespace paceline;

TEST_CASE("a call says what it is") {
  const Call call = make_call(Collective::reduce, DataType::float32, Operation::sum, 3, 1024, 812);
  CHECK(describe(call) == "reduce #812 of 1024 float32, sum, root 3");
  CHECK(collective_of(call) == Collective::reduce);
}

TEST_CASE("a call's way is no part of what it is, but tells calls apart") {
  const auto call = [](std::uint64_t count, std::uint16_t way) {
    return make_call(Collective::broadcast, DataType::float32, Operation::sum, 0, count, 2, way);
  };
  const std::uint64_t largest = (std::uint64_t{1} << 48) - 1;
  CHECK(describe(call(largest, 0xffff)) == "broadcast #2 of 281474976710655 float32, root 0");
  CHECK(call(10, 1) != call(10, 2));
  CHECK(same_but_for_way(call(10, 1), call(10, 2)));
  CHECK_FALSE(same_but_for_way(call(10, 1), call(11, 1)));
}

TEST_CASE("a recv carries the same words as its send") {
  CHECK(make_call(Collective::recv, DataType::int8, Operation::sum, 0, 5, 1) ==
        make_call(Collective::send, DataType::int8, Operation::sum, 0, 5, 1));
  CHECK(describe(make_call(Collective::recv, DataType::int8, Operation::sum, 0, 5, 1)) == "send/receive #1 of 5 int8");
}

TEST_CASE("messages between two ranks are no collectives") {
  for (int which = 0; which < collective_count; ++which) {
    const auto collective = static_cast<Collective>(which);
    CHECK(is_collective(make_call(collective, DataType::int8, Operation::sum, 0, 5, 1)));
  }
  for (const Collective message : {Collective::send, Collective::recv})
    CHECK_FALSE(is_collective(make_call(message, DataType::int8, Operation::sum, 0, 5, 1)));
}

TEST_CASE("words that no call has are described, not trusted") {
  CHECK(describe(Call{1, 0xffffffff, 0}) == "an unknown call 0xffffffff");
}

TEST_CASE("sequence numbers wrap") {
  CHECK(comes_before(1, 2));
  CHECK_FALSE(comes_before(2, 2));
  CHECK_FALSE(comes_before(3, 2));
  CHECK(comes_before(0xffffffff, 0));
  CHECK(comes_before(0xfffffff0, 5));
  CHECK_FALSE(comes_before(5, 0xfffffff0));
}
