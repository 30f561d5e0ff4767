#include "comm/plan_cache.h"

#include <doctest/doctest.h>

namespace paceline {
namespace {

Shape shape(std::size_t count) { return {.count = count, .which = Collective::all_reduce}; }

Plan plan(std::size_t steps) {
  Plan made;
  made.lanes.resize(1);
  made.lanes[0].resize(steps);
  return made;
}

}  // namespace

TEST_CASE("plan cache: a plan is found by every field of its shape") {
  PlanCache plans;
  const Plan& kept = plans.keep(shape(5), plan(1));
  CHECK(plans.find(shape(5)) == &kept);
  for (const Shape& other :
       {Shape{.count = 6, .which = Collective::all_reduce}, Shape{.count = 5, .which = Collective::broadcast},
        Shape{.count = 5, .root = 1, .which = Collective::all_reduce},
        Shape{.count = 5, .which = Collective::all_reduce, .type = DataType::float32},
        Shape{.count = 5, .which = Collective::all_reduce, .op = Operation::max},
        Shape{.count = 5, .which = Collective::all_reduce, .in_place = true}})
    CHECK(plans.find(other) == nullptr);
  CHECK(plans.find(shape(5)) == &kept);
  const std::uint64_t epoch = plans.epoch();
  plans.clear();
  CHECK(plans.find(shape(5)) == nullptr);
  CHECK(plans.epoch() != epoch);
}

TEST_CASE("plan cache: counts that never repeat do not fill the memory, and what is used often stays") {
  constexpr std::size_t steps = 1000;
  PlanCache plans(100 * steps * sizeof(PlanStep));
  const Plan* often = &plans.keep(shape(0), plan(steps));
  for (std::size_t count = 1; count <= 1000; ++count) {
    CHECK(plans.find(shape(0)) == often);
    plans.keep(shape(count), plan(steps));
    plans.trim();
  }
  std::size_t left = 0;
  for (std::size_t count = 1; count <= 1000; ++count) left += plans.find(shape(count)) != nullptr ? 1 : 0;
  CHECK(left >= 48);
  CHECK(left <= 100);
  CHECK(plans.find(shape(1000)) != nullptr);
}

TEST_CASE("plan cache: nothing goes before the end of the call, and not the plan of the last one") {
  PlanCache plans(10 * sizeof(PlanStep));
  const Plan& first = plans.keep(shape(1), plan(1000));
  const Plan& second = plans.keep(shape(2), plan(1000));
  CHECK(plans.find(shape(1)) == &first);
  CHECK(plans.find(shape(2)) == &second);
  const std::uint64_t epoch = plans.epoch();
  plans.trim();
  CHECK(plans.epoch() != epoch);
  plans.trim();
  plans.keep(shape(3), plan(0));
  CHECK(plans.find(shape(3)) != nullptr);
  CHECK(plans.find(shape(2)) == &second);
  CHECK(plans.find(shape(1)) == nullptr);
  CHECK(plans.find(shape(2)) == &second);
}

}  // namespace paceline
