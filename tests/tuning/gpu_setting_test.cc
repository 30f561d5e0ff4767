#include "tuning/gpu_setting.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tuning/profile.h"

namespace paceline {
namespace {

using nlohmann::json;

GpuSetting setting_of(GpuMachine machine, std::uint8_t lanes) {
  return {std::move(machine), {{Collective::all_reduce, 0, {.family = GpuFamily::brief, .lanes = lanes}}}};
}

std::string error(const char* text) { return read_gpu_settings(json::parse(text)).status().message(); }

std::string with_row(const std::string& row) {
  return R"([{"gpu": "G", "link": "nvlink", "ranks": 2, "table": [)" + row + "]}]";
}

}  // namespace

TEST_CASE("GPU settings that are written are read") {
  GpuSetting setting = setting_of({"NVIDIA H200", "nvlink", 4, 48}, 8);
  setting.rows.push_back({Collective::all_reduce,
                          1 << 20,
                          {.family = GpuFamily::streaming, .two_steps = true, .lanes = 15, .blocks = 24}});
  setting.rows.push_back({Collective::all_reduce,
                          std::uint64_t{1} << 33,
                          {.family = GpuFamily::large,
                           .two_steps = true,
                           .direct = true,
                           .pushed = true,
                           .passed = true,
                           .chunk = 16384}});
  setting.rows.push_back({Collective::gather, 0, {.family = GpuFamily::large, .direct = true, .engines = true}});
  const auto read = read_gpu_settings(json::array({write_gpu_setting(setting)}));
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  REQUIRE(read->size() == 1);
  CHECK((*read)[0].machine.gpu == "NVIDIA H200");
  CHECK((*read)[0].machine.link == "nvlink");
  CHECK((*read)[0].machine.ranks == 4);
  CHECK((*read)[0].machine.blocks == 48);
  CHECK((*read)[0].rows == setting.rows);
}

TEST_CASE("the shipped tables can be read, and are each of another machine") {
  const auto read = read_gpu_settings(json::parse(shipped_gpu_tables())["gpus"]);
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  CHECK(shipped_gpu_settings().size() == read->size());
  for (const GpuSetting& setting : *read) {
    CHECK_FALSE(setting.machine.link.empty());
    CHECK_FALSE(setting.rows.empty());
    const auto choice = choose_gpu_table({}, *read, setting.machine);
    GpuTable its = GpuTable::rules(setting.machine.ranks);
    its.replace(setting.rows);
    CHECK(choice.table.digest() == its.digest());
    CHECK(choice.source == "shipped");
  }
}

TEST_CASE("a table that is wrong is told") {
  CHECK(error("{}") == "the GPU table stands in no list");
  CHECK(error("[3]") == "the GPU table has no gpu, link, ranks and table");
  CHECK(error(R"([{"gpu": "G", "link": "nvlink", "ranks": 0, "table": []}])").find("has no gpu") != std::string::npos);
  CHECK(error(R"([{"gpu": "G", "link": "nvlink", "ranks": 2, "blocks": 256, "table": []}])") ==
        "the GPU table has wrong blocks");
  const auto row_error = [](const char* row) { return error(with_row(row).c_str()); };
  CHECK(row_error(R"({"collective": "reduce", "from": 0, "family": "brief"})") == "no error");
  CHECK(row_error(R"({"collective": "gather", "from": 0, "family": "brief", "engines": 1})") ==
        "the GPU table has a row with a wrong engines");
  CHECK(row_error("3") == "the GPU table has a row without a collective");
  CHECK(row_error(R"({"collective": "reduce", "family": "brief"})").find("without the size") != std::string::npos);
  CHECK(row_error(R"({"collective": "reduce", "from": -1, "family": "brief"})").find("without the size") !=
        std::string::npos);
  CHECK(row_error(R"({"collective": "reduce", "from": 0, "family": "huge"})").find("without a family") !=
        std::string::npos);
  CHECK(row_error(R"({"collective": "reduce", "from": 0, "family": "brief", "steps": 3})").find("neither 1 nor 2") !=
        std::string::npos);
  CHECK(row_error(R"({"collective": "reduce", "from": 0, "family": "brief", "direct": 1})").find("wrong direct") !=
        std::string::npos);
  for (const char* field : {R"("lanes": 256)", R"("blocks": -1)", R"("chunk": 4294967296)", R"("chunk": 1.5)"}) {
    CAPTURE(field);
    CHECK(row_error((R"({"collective": "reduce", "from": 0, "family": "large", )" + std::string(field) + "}").c_str())
              .find("wrong lanes, blocks or chunk") != std::string::npos);
  }
  const char* const later = R"({"collective": "reduce", "from": 8, "family": "brief"})";
  CHECK(row_error(later).find("do not begin at 0 and ascend") != std::string::npos);
  const char* const twice = R"({"collective": "reduce", "from": 0, "family": "brief"},
                               {"collective": "reduce", "from": 0, "family": "large"})";
  CHECK(row_error(twice).find("do not begin at 0 and ascend") != std::string::npos);
}

TEST_CASE("collectives that this build does not have are passed over") {
  const auto read =
      read_gpu_settings(json::parse(with_row(R"({"collective": "magic", "from": 8, "family": "brief"})")));
  REQUIRE(read.ok());
  CHECK((*read)[0].rows.empty());
}

TEST_CASE("a profile has GPU tables beside its settings") {
  const std::string begin = R"({"format": 2, "fingerprint": "a", "version": "1", "settings": [], "gpus": )";
  const auto profile =
      read_profile(begin + with_row(R"({"collective": "reduce", "from": 0, "family": "large"})") + "}");
  REQUIRE_MESSAGE(profile.ok(), profile.status().message());
  REQUIRE(profile->gpus.size() == 1);
  CHECK(profile->gpus[0].rows[0].way.family == GpuFamily::large);
  CHECK(read_profile(begin + "7}").status().message() == "the GPU table stands in no list");
}

TEST_CASE("measured tables go before shipped ones, and both before the rules") {
  const GpuMachine machine{"NVIDIA H200", "nvlink", 2};
  const std::vector<GpuSetting> measured{setting_of(machine, 3)};
  const std::vector<GpuSetting> shipped{setting_of(machine, 5)};
  const auto lanes = [](const GpuChoice& choice) {
    return static_cast<int>(choice.table.way(Collective::all_reduce, 8).lanes);
  };
  CHECK(lanes(choose_gpu_table(measured, shipped, machine)) == 3);
  CHECK(choose_gpu_table(measured, shipped, machine).source == "measured");
  CHECK(lanes(choose_gpu_table({}, shipped, machine)) == 5);
  CHECK(choose_gpu_table({}, shipped, machine).source == "shipped");
  CHECK(choose_gpu_table({}, {}, machine).table.digest() == GpuTable::rules(2).digest());
  CHECK(choose_gpu_table({}, {}, machine).source == "rules");
  // What the table lacks.
  CHECK(choose_gpu_table(measured, {}, machine).table.way(Collective::reduce, 1 << 20) ==
        GpuTable::rules(2).way(Collective::reduce, 1 << 20));
  for (const GpuMachine& other :
       {GpuMachine{"NVIDIA H100", "nvlink", 2}, {"NVIDIA H200", "pcie", 2}, {"NVIDIA H200", "nvlink", 4}})
    CHECK(choose_gpu_table(measured, shipped, other).source == "rules");
  // Of tables for other numbers of blocks that for the most that are not too many.
  const std::vector<GpuSetting> by_blocks{setting_of({"NVIDIA H200", "nvlink", 2, 64}, 9), shipped[0],
                                          setting_of({"NVIDIA H200", "nvlink", 2, 16}, 7)};
  const std::pair<int, int> lanes_by_blocks[] = {{64, 9}, {48, 5}, {32, 5}, {31, 7}, {16, 7}, {8, 7}};
  for (const auto& [blocks, wanted] : lanes_by_blocks)
    CHECK(lanes(choose_gpu_table({}, by_blocks, {"NVIDIA H200", "nvlink", 2, blocks})) == wanted);
  // A link that cannot be told may be any.
  CHECK(choose_gpu_table(measured, shipped, {"NVIDIA H200", "", 2}).source == "measured");
}

TEST_CASE("ranks with different tables say whose differ") {
  const GpuVote h200{"NVIDIA H200", 1};
  const GpuVote h100{"NVIDIA H100", 2};
  CHECK(disagreement(std::vector{h200}).empty());
  CHECK(disagreement(std::vector{h200, h200, h200}).empty());
  CHECK(
      disagreement(std::vector{h200, h200, h100}) ==
      "the ranks' tables of GPU collectives differ (rank 0 has one for NVIDIA H200, rank 2 for NVIDIA H100): all go by "
      "the built-in rules. Use GPUs of one kind, and the same profile on every rank");
}

}  // namespace paceline
