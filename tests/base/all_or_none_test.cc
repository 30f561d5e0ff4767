#include "base/all_or_none.h"

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <system_error>

#include "api/address_limit.h"
#include "transport/child.h"

namespace paceline {
namespace {

TEST_CASE("threads that all can begin do, each with its number, and take no signals of the program's") {
  std::array<int, 5> worked{};
  std::atomic<int> prepared = 0;
  const auto prepare = [&](std::size_t) {
    ++prepared;
    return true;
  };
  const auto work = [&](std::size_t i) {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    worked[i] = prepared == 5 && sigismember(&mask, SIGINT) == 1 ? static_cast<int>(i) + 1 : -1;
  };
  CHECK_FALSE(all_or_none(5, prepare, work).has_value());
  CHECK(worked == std::array<int, 5>{1, 2, 3, 4, 5});
}

TEST_CASE("where one thread cannot begin none does") {
  std::atomic<int> worked = 0;
  CHECK_FALSE(all_or_none(
                  5, [](std::size_t i) { return i != 3; }, [&](std::size_t) { ++worked; })
                  .has_value());
  CHECK(worked == 0);
}

TEST_CASE("where one thread cannot be started none begins, and it is named with the reason") {
  Child child([] {
    std::atomic<int> worked = 0;
    if (!testing::limit_addresses(std::size_t{100} << 20)) return false;
    const auto failed = all_or_none(
        400, [](std::size_t) { return true; }, [&](std::size_t) { ++worked; });
    if (!failed || failed->thread == 0 || failed->thread >= 400 || worked != 0) return false;
    try {
      std::rethrow_exception(failed->why);
    } catch (const std::system_error&) {
      return true;
    }
  });
  CHECK(child.ended_well());
}

}  // namespace
}  // namespace paceline
