#include "tuning/gpu_table.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace paceline {
namespace {

constexpr std::uint64_t kilo = 1 << 10;
constexpr std::uint64_t mega = 1 << 20;

const Collective of_gpus[] = {Collective::all_reduce,     Collective::broadcast, Collective::reduce,
                              Collective::all_gather,     Collective::gather,    Collective::scatter,
                              Collective::reduce_scatter, Collective::all_to_all};

}  // namespace

TEST_CASE("the rules of two ranks") {
  const GpuTable rules = GpuTable::rules(2);
  for (const Collective which : of_gpus) {
    CAPTURE(name(which));
    CHECK(rules.way(which, 0).family == GpuFamily::brief);
    CHECK(rules.way(which, 8 * mega).family == GpuFamily::brief);
    CHECK(rules.way(which, 8 * mega + 1).family == GpuFamily::large);
    CHECK_FALSE(rules.way(which, 64 * mega).two_steps);
  }
  const auto turns_at = [&](Collective which, std::uint64_t from, bool GpuWay::*what) {
    CAPTURE(name(which));
    CHECK_FALSE(rules.way(which, from - 1).*what);
    CHECK(rules.way(which, from).*what);
    CHECK(rules.way(which, UINT64_MAX).*what);
  };
  turns_at(Collective::all_reduce, 12 * mega, &GpuWay::direct);
  turns_at(Collective::all_reduce, 192 * mega, &GpuWay::passed);
  turns_at(Collective::all_gather, 6 * mega, &GpuWay::direct);
  CHECK(rules.way(Collective::all_gather, 6 * mega).family == GpuFamily::brief);
  turns_at(Collective::broadcast, 20 * mega, &GpuWay::direct);
  turns_at(Collective::broadcast, 40 * mega, &GpuWay::engines);
  turns_at(Collective::all_to_all, 160 * mega, &GpuWay::engines);
  turns_at(Collective::all_gather, 160 * mega, &GpuWay::engines);
  turns_at(Collective::scatter, 40 * mega, &GpuWay::engines);
  turns_at(Collective::gather, 40 * mega, &GpuWay::engines);
  for (const Collective which : of_gpus) {
    CAPTURE(name(which));
    CHECK(rules.way(which, UINT64_MAX).engines == !reduces(which));
    CHECK(rules.way(which, UINT64_MAX).passed == (which == Collective::all_reduce));
    CHECK_FALSE(rules.way(which, UINT64_MAX).pushed);
  }
}

TEST_CASE("the rules of more") {
  const GpuTable rules = GpuTable::rules(4);
  for (const Collective which : {Collective::all_reduce, Collective::broadcast, Collective::reduce}) {
    CAPTURE(name(which));
    const std::uint64_t from = which == Collective::all_reduce ? 192 * kilo : 256 * kilo + 1;
    CHECK(rules.way(which, from - 1) == GpuWay{});
    CHECK(rules.way(which, from) == GpuWay{.family = GpuFamily::streaming, .two_steps = true});
  }
  CHECK_FALSE(rules.way(Collective::all_reduce, 20 * mega - 1).pushed);
  CHECK(rules.way(Collective::all_reduce, 32 * mega) ==
        GpuWay{.family = GpuFamily::streaming, .two_steps = true, .direct = true, .pushed = true});
  CHECK(rules.way(Collective::all_reduce, 32 * mega + 1) ==
        GpuWay{.family = GpuFamily::large, .two_steps = true, .direct = true, .pushed = true});
  CHECK(rules.way(Collective::reduce, 8 * mega + 1) ==
        GpuWay{.family = GpuFamily::large, .direct = true, .passed = true});
  CHECK(rules.way(Collective::reduce, 80 * mega).pushed);
  // What goes round takes longer with more ranks.
  CHECK_FALSE(rules.way(Collective::all_reduce, 64 * mega - 1).passed);
  CHECK(rules.way(Collective::all_reduce, 64 * mega).passed);
  CHECK(rules.way(Collective::all_reduce, 64 * mega).pushed);  // what cannot be passed on
  CHECK_FALSE(GpuTable::rules(8).way(Collective::all_reduce, 128 * mega - 1).passed);
  CHECK(GpuTable::rules(8).way(Collective::all_reduce, 128 * mega).passed);
  CHECK(rules.way(Collective::reduce, 8 * mega).passed);
  CHECK_FALSE(GpuTable::rules(8).way(Collective::reduce, 8 * mega - 1).passed);
  CHECK_FALSE(rules.way(Collective::reduce_scatter, 40 * mega - 1).passed);
  CHECK(rules.way(Collective::reduce_scatter, 40 * mega).passed);
  CHECK(rules.way(Collective::broadcast, 8 * mega - 1) == GpuWay{.family = GpuFamily::streaming, .two_steps = true});
  CHECK(rules.way(Collective::broadcast, 1024 * mega) ==
        GpuWay{.family = GpuFamily::streaming, .two_steps = true, .direct = true});
  CHECK_FALSE(rules.way(Collective::scatter, 3 * mega / 4 - 1).direct);
  CHECK(rules.way(Collective::scatter, 3 * mega / 4).direct);
  CHECK_FALSE(rules.way(Collective::scatter, 20 * mega - 1).engines);
  CHECK(rules.way(Collective::scatter, 20 * mega).engines);
  CHECK_FALSE(rules.way(Collective::all_to_all, 512 * kilo + 1).two_steps);
  CHECK(rules.way(Collective::all_to_all, 80 * mega).engines);
  CHECK_FALSE(rules.way(Collective::reduce_scatter, 1024 * mega).pushed);
}

TEST_CASE("what is no collective of a table has the plainest way") {
  const GpuTable rules = GpuTable::rules(4);
  for (const Collective which : {Collective::barrier, Collective::send, Collective::recv})
    CHECK(rules.way(which, 64 * mega) == GpuWay{});
}

TEST_CASE("rows replace those of their collectives") {
  GpuTable table = GpuTable::rules(2);
  const GpuWay streams{.family = GpuFamily::streaming, .lanes = 8, .blocks = 16};
  const GpuWay chunks{.family = GpuFamily::large, .direct = true, .chunk = 8192};
  const GpuRow rows[] = {
      {Collective::reduce, 0, {}}, {Collective::reduce, 100, streams}, {Collective::reduce, 200, chunks}};
  table.replace(rows);
  CHECK(table.way(Collective::reduce, 99) == GpuWay{});
  CHECK(table.way(Collective::reduce, 100) == streams);
  CHECK(table.way(Collective::reduce, 199) == streams);
  CHECK(table.way(Collective::reduce, 200) == chunks);
  CHECK(table.way(Collective::reduce, UINT64_MAX) == chunks);
  CHECK(table.way(Collective::scatter, mega) == GpuTable::rules(2).way(Collective::scatter, mega));
}

TEST_CASE("a table's digest is that of its rows") {
  GpuTable table = GpuTable::rules(4);
  CHECK(table.digest() == GpuTable::rules(4).digest());
  CHECK(table.digest() != GpuTable::rules(2).digest());
  GpuTable same;
  same.replace(table.rows());
  CHECK(same.digest() == table.digest());
  std::vector<GpuRow> rows = table.rows();
  rows.back().way.lanes = 3;
  table.replace(rows);
  CHECK(table.digest() != same.digest());
}

TEST_CASE("ways that tables take side by side have marks of their own") {
  const GpuWay plain;
  std::vector<std::uint8_t> marks;
  for (const GpuFamily family : {GpuFamily::brief, GpuFamily::wide, GpuFamily::streaming, GpuFamily::large})
    for (const bool two_steps : {false, true})
      for (const GpuWay how : {GpuWay{},
                               {.direct = true},
                               {.direct = true, .pushed = true},
                               {.direct = true, .passed = true},
                               {.direct = true, .pushed = true, .passed = true},
                               {.direct = true, .engines = true}})
        marks.push_back(mark({.family = family,
                              .two_steps = two_steps,
                              .direct = how.direct,
                              .pushed = how.pushed,
                              .passed = how.passed,
                              .engines = how.engines}));
  for (const bool direct : {false, true}) marks.push_back(mark({.family = GpuFamily::deep, .direct = direct}));
  std::sort(marks.begin(), marks.end());
  CHECK(std::unique(marks.begin(), marks.end()) == marks.end());
  CHECK(mark(plain) == mark(GpuWay{}));
}

}  // namespace paceline
