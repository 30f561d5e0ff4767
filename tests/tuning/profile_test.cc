#include "tuning/profile.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "tuning/fit.h"
#include "tuning/tuning_file.h"

namespace paceline {
namespace {

Setting setting_of(std::vector<Curve> curves) {
  Setting setting;
  setting.transport = "shm";
  setting.ranks = 4;
  setting.model.start = 0.75;
  setting.curves = std::move(curves);
  setting.table = fastest(setting.curves);
  return setting;
}

Curve curve(std::string_view algorithm, std::vector<Point> points) {
  return {Collective::all_reduce, algorithm_named(algorithm), std::move(points)};
}

std::string profile_with(std::string_view settings, std::string_view fingerprint = "a",
                         std::string_view version = "1") {
  return fmt::format(R"({{"format": 2, "fingerprint": "{}", "version": "{}", "settings": [{}]}})", fingerprint, version,
                     settings);
}

// The times of all algorithms on four ranks by this model, where calls are planned by another.
std::vector<Curve> times_by(const CostModel& truth, const CostModel& base) {
  std::vector<Curve> curves;
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective : algorithm.collectives) {
      if (collective == Collective::barrier || !serves(algorithm, {.collective = collective, .ranks = 4})) continue;
      Curve made{collective, &algorithm, {}};
      for (const std::size_t bytes : {8, 1024, 16384, 262144, 4194304}) {
        const Problem problem{collective, 4, 0, bytes / 4, false};
        made.points.push_back({bytes, algorithm.cost(problem, algorithm.parameters(problem, base), truth)});
      }
      curves.push_back(std::move(made));
    }
  }
  return curves;
}

}  // namespace

TEST_CASE("what is written is read") {
  const Setting setting = setting_of({curve("ring", {{8, 3.5}, {1024, 4}}), curve("one_shot", {{8, 2}, {1024, 6}})});
  const auto profile = read_profile(profile_with(write_setting(setting)));
  REQUIRE_MESSAGE(profile.ok(), profile.status().message());
  REQUIRE(profile->settings.size() == 1);
  const Setting& read = profile->settings[0];
  CHECK(read.transport == "shm");
  CHECK(read.ranks == 4);
  CHECK(read.model.start == 0.75);
  CHECK(read.model.partner == setting.model.partner);
  CHECK(read.model.board == setting.model.board);
  CHECK(read.model.receiver == setting.model.receiver);
  CHECK(read.model.common_share == setting.model.common_share);
  CHECK(read.model.largest_chunk == setting.model.largest_chunk);
  REQUIRE(read.curves.size() == 2);
  CHECK(read.curves[0].algorithm == algorithm_named("ring"));
  CHECK(read.curves[0].points[1].us == 4);
  REQUIRE(read.table.size() == 2);
  CHECK(read.table[1].from == 133);
}

TEST_CASE("a profile from before calls, partners, boards, receivers and common bytes were measured has none") {
  std::string text = write_setting(setting_of({}));
  for (const std::string_view constant : {"call_us", "partner_us", "board_us", "receiver_us", "common_share"}) {
    const auto place = text.find(fmt::format("\"{}\":", constant));
    REQUIRE(place != std::string::npos);
    text.erase(place, text.find(',', place) + 1 - place);
  }
  const auto read = read_setting(text);
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  CHECK(read->model.call == 0);
  CHECK(read->model.partner == 0);
  CHECK(read->model.board == 0);
  CHECK(read->model.receiver == 0);
  CHECK(read->model.common_share == 0);
}

TEST_CASE("the table changes where another gets faster, if it gains by it") {
  const auto table = fastest({curve("one_shot", {{16, 1}, {64, 2}, {256, 8}, {1024, 9}, {4096, 9}}),
                              curve("ring", {{16, 2}, {64, 4}, {256, 4}, {1024, 4}, {4096, 3}}),
                              curve("two_shot", {{16, 2}, {64, 4}, {256, 4}, {1024, 3.95}, {4096, 3}})});
  REQUIRE(table.size() == 2);
  CHECK(table[0].algorithm == algorithm_named("one_shot"));
  CHECK(table[0].from == 0);
  CHECK(table[0].below == 128);
  CHECK(table[1].algorithm == algorithm_named("ring"));
  CHECK(table[1].from == 128);
  CHECK(table[1].below == 2 * 4096 + 1);
}

TEST_CASE("where one of two is not known, the table changes half way") {
  const auto table = fastest({curve("one_shot", {{16, 1}, {256, 2}}), curve("ring", {{256, 3}, {4096, 3}})});
  REQUIRE(table.size() == 2);
  CHECK(table[1].algorithm == algorithm_named("ring"));
  CHECK(table[1].from == 1024);
}

TEST_CASE("where a way to run an algorithm is not known, the table changes by the algorithm's own time") {
  Curve in_chunks = curve("ring", {{4096, 8}});
  in_chunks.variant = {.chunk = 512};
  const auto table =
      fastest({curve("one_shot", {{1024, 2}, {4096, 32}}), curve("ring", {{1024, 4}, {4096, 9}}), in_chunks});
  REQUIRE(table.size() == 2);
  CHECK(table[1].variant == in_chunks.variant);
  CHECK(table[1].from == 1625);  // 1024 * 4^(1/3): twice the time at one end, a quarter at the other
}

TEST_CASE("a way to run an algorithm must gain more than one of many is lucky") {
  const auto ways = [](double us) {
    Curve in_chunks = curve("ring", {{1024, us}, {4096, 4 * us}});
    in_chunks.variant = {.chunk = 512};
    return fastest({curve("ring", {{1024, 10}, {4096, 40}}), in_chunks});
  };
  REQUIRE(ways(9.1).size() == 1);
  CHECK(ways(9.1)[0].variant == Variant());
  REQUIRE(ways(8.9).size() == 1);
  CHECK(ways(8.9)[0].variant.chunk == 512);
}

TEST_CASE("a way to run an algorithm goes where it gains too little") {
  Curve in_chunks = curve("ring", {{1024, 8}, {4096, 39}});
  in_chunks.variant = {.chunk = 512};
  const auto table = fastest({curve("ring", {{1024, 10}, {4096, 40}}), in_chunks});
  REQUIRE(table.size() == 2);
  CHECK(table[0].variant == in_chunks.variant);
  CHECK(table[1].variant == Variant());
}

TEST_CASE("an algorithm that is not measured at each size keeps its place between its sizes") {
  const auto table =
      fastest({curve("one_shot", {{1024, 2}, {4096, 4}}), curve("ring", {{1024, 4}, {2048, 4}, {4096, 4.1}})});
  REQUIRE(table.size() == 1);
  CHECK(table[0].algorithm == algorithm_named("one_shot"));
}

TEST_CASE("the table says how the fastest ran, and what is written of it is read") {
  Curve longer = curve("ring", {{1024, 5}, {4096, 2}});
  longer.variant = {.chunk = 512};
  Curve read_in_place = curve("direct", {{1024, 4}, {4096, 6}});
  read_in_place.collective = Collective::scatter;
  read_in_place.variant = {.protocol = Protocol::single_copy};
  const Setting setting = setting_of({curve("ring", {{1024, 4}, {4096, 4}}), longer, read_in_place});
  const auto read = read_setting(write_setting(setting));
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  REQUIRE(read->curves.size() == 3);
  CHECK(read->curves[1].variant == longer.variant);
  REQUIRE(read->table.size() == 3);
  CHECK(read->table[0].variant == Variant());
  CHECK(read->table[1].variant == longer.variant);
  CHECK(read->table[1].from == 1435);  // 1024 * 4^(ln(5/4) / ln(5/2))
  CHECK(read->table[2].variant == read_in_place.variant);
  const std::string text = write_setting(setting);
  for (const auto& [good, bad] :
       {std::pair{"\"chunk\":512", "\"chunk\":0"}, {"\"protocol\":\"single_copy\"", "\"protocol\":\"magic\""}}) {
    std::string changed = text;
    REQUIRE(changed.find(good) != std::string::npos);
    changed.replace(changed.find(good), std::string_view(good).size(), bad);
    CHECK(read_setting(changed).status().message().find("chunk, radix or protocol") != std::string::npos);
  }
}

TEST_CASE("a profile of another machine, of another version or none is not used") {
  const std::string good = profile_with("", "here", "0.1.0");
  CHECK(reason_against(good, "here", "0.1.0").empty());
  CHECK(reason_against(good, "there", "0.1.0") == "it was made on another machine");
  CHECK(reason_against(good, "here", "0.2.0") == "it was made by version 0.1.0, this is 0.2.0");
  CHECK(reason_against("", "here", "0.1.0") == "the profile is no JSON object");
  CHECK(reason_against(good.substr(0, 20), "here", "0.1.0") == "the profile is no JSON object");
  CHECK(reason_against(R"({"format": 1})", "here", "0.1.0") == "the profile is not of format 2");
}

TEST_CASE("what is wrong in a setting is said") {
  const auto error = [](std::string_view setting) { return read_profile(profile_with(setting)).status().message(); };
  std::string good = write_setting(setting_of({curve("ring", {{8, 3.5}, {1024, 4}})}));
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = good;
    REQUIRE(changed.find(from) != std::string::npos);
    return changed.replace(changed.find(from), from.size(), to);
  };
  CHECK(read_profile(profile_with(good)).ok());
  CHECK(error("3").find("has a setting without") != std::string::npos);
  CHECK(error(with("\"start_us\":0.75", "\"start_us\":-1")) == "the profile has no start_us from 0 to 1000000");
  CHECK(error(with("[8,3.5]", "[8,0]")) == "the profile has points that are out of range or order");
  CHECK(error(with("[8,3.5]", "[2048,3.5]")) == "the profile has points that are out of range or order");
  CHECK(error(with("[8,3.5]", "[-8,3.5]")) == "the profile has a point that is not [bytes, microseconds]");
}

TEST_CASE("an algorithm that this build does not have is passed over") {
  std::string text = write_setting(setting_of({curve("ring", {{8, 3.5}})}));
  for (std::size_t at; (at = text.find("\"ring\"")) != std::string::npos;) text.replace(at, 6, "\"magic\"");
  const auto setting = read_setting(text);
  REQUIRE_MESSAGE(setting.ok(), setting.status().message());
  CHECK(setting->curves.empty());
  CHECK(setting->table.empty());
}

TEST_CASE("the fit finds the constants by which times were made") {
  CostModel truth;
  truth.start = 2.5;
  truth.step = 0.2;
  truth.bandwidth = 4000;
  truth.reduce_bandwidth = 2500;
  truth.copy_bandwidth = 6000;
  const CostModel base;
  const auto curves = times_by(truth, base);
  CostModel near = base;
  near.start = 0.55;
  CostModel far = base;
  far.start = 40;
  far.bandwidth = 100;
  far.copy_bandwidth = 1000;
  for (const CostModel& from : {base, near, far}) {
    const CostModel found = fit(from, 4, curves);
    CHECK(median_error(found, base, 4, curves) < 0.01);
    CHECK(median_error(from, base, 4, curves) > 0.1);
    const auto off = [&](double CostModel::*field) { return std::abs(found.*field / truth.*field - 1); };
    CHECK(off(&CostModel::start) < 0.05);
    CHECK(off(&CostModel::step) < 0.1);
    CHECK(off(&CostModel::partner) < 0.1);
    CHECK(off(&CostModel::board) < 0.1);
    CHECK(off(&CostModel::receiver) < 0.1);
    CHECK(off(&CostModel::bandwidth) < 0.05);
    CHECK(off(&CostModel::reduce_bandwidth) < 0.05);
    CHECK(off(&CostModel::copy_bandwidth) < 0.2);
  }
}

TEST_CASE("the fit finds what bytes cost that several ranks read in one place") {
  const CostModel base;
  for (const double share : {0.0, 0.4, 2.5}) {
    CostModel truth;
    truth.common_share = share;
    CHECK(fit(base, 4, times_by(truth, base)).common_share == doctest::Approx(share).epsilon(0.05));
  }
  // Two ranks read nothing in common, and between machines each has its own.
  CHECK(fit(base, 2, {}).common_share == base.common_share);
  CostModel network;
  network.multicast_share = 1;
  network.common_share = 0;
  CHECK(fit(network, 4, times_by(network, network)).common_share == 0);
}

TEST_CASE("the fit tells what a call costs from what its messages cost") {
  CostModel truth;
  truth.call = 1.4;
  truth.start = 0.3;
  truth.step = 0.1;
  truth.bandwidth = 12000;
  CostModel base;
  const auto curves = times_by(truth, base);
  for (const double start : {0.3, 0.75, 1.5}) {
    CostModel from = base;
    from.start = start;
    const CostModel found = fit(from, 4, curves);
    CHECK(median_error(found, base, 4, curves) < 0.01);
    CHECK(found.call == doctest::Approx(truth.call).epsilon(0.1));
    CHECK(found.start == doctest::Approx(truth.start).epsilon(0.1));
    CHECK(found.step == doctest::Approx(truth.step).epsilon(0.2));
    CHECK(found.bandwidth == doctest::Approx(truth.bandwidth).epsilon(0.05));
  }
  // Between machines there is no such constant.
  base.multicast_share = 1;
  CHECK(fit(base, 4, times_by(truth, base)).call == 0);
}

TEST_CASE("the fit leaves constants where they were of which the times say nothing") {
  const CostModel base;
  Curve slower = curve("ring", {});
  for (const std::size_t bytes : {8, 1024, 16384, 262144, 4194304}) {
    const Problem problem{Collective::all_reduce, 4, 0, bytes / 4, false};
    const auto& ring = *slower.algorithm;
    slower.points.push_back({bytes, 3 * ring.cost(problem, ring.parameters(problem, base), base)});
  }
  const CostModel found = fit(base, 4, {slower});
  CHECK(median_error(found, base, 4, {slower}) < 0.05);
  CHECK(median_error(base, base, 4, {slower}) > 0.5);
  for (double CostModel::*const field :
       {&CostModel::partner, &CostModel::board, &CostModel::receiver, &CostModel::multicast_share})
    CHECK(found.*field == doctest::Approx(base.*field).epsilon(1e-9));
}

}  // namespace paceline
