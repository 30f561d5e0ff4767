#include "base/interrupted.h"

#include <doctest/doctest.h>

#include <thread>

namespace paceline {
namespace {

int times_asked = 0;
int answer = 0;
bool nested_answer = true;

int ask() {
  ++times_asked;
  nested_answer = interrupted();
  return answer;
}

}  // namespace

TEST_CASE("interrupted: the program is asked, on its first thread alone, and not while it answers") {
  CHECK_FALSE(interrupted());
  ask_when_waiting(&ask);
  CHECK_FALSE(interrupted());
  answer = 1;
  CHECK(interrupted());
  CHECK(times_asked == 2);
  CHECK_FALSE(nested_answer);
  bool elsewhere = true;
  std::thread([&] { elsewhere = interrupted(); }).join();
  CHECK_FALSE(elsewhere);
  CHECK(times_asked == 2);
  ask_when_waiting(nullptr);
  CHECK_FALSE(interrupted());
  CHECK(times_asked == 2);
}

}  // namespace paceline
