#include "cuda/memory/window.h"

#include <doctest/doctest.h>

#include <initializer_list>

using namespace paceline::cuda;

TEST_CASE("a number of long ago is not taken for that of a later message") {
  for (const std::uint32_t wanted : {1U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    CHECK(passed(wanted + 1, wanted));
    CHECK(passed(wanted + announcements, wanted));
    CHECK_FALSE(passed(wanted, wanted));
    for (const std::uint32_t messages_ago : {1U, 2U, 0x7fffffffU, 0x80000000U, 0x80000001U, 0xc0000000U})
      CHECK_FALSE(passed(wanted - messages_ago, wanted));
  }
}
