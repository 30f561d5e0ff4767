#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "paceline/paceline.h"

namespace {

std::string error_of(const char* request) {
  const char* answer = nullptr;
  if (pacePredict(request, &answer) == paceSuccess) return "";
  CHECK(answer == nullptr);
  return paceGetLastError(nullptr);
}

}  // namespace

TEST_CASE("a prediction is a request and an answer") {
  const char* answer = nullptr;
  REQUIRE(pacePredict(R"({"collective": "broadcast", "preset": "dgx1-v100", "gpus": [0, 3], "sizes": [1000000000],
                          "algorithm": "chain", "machine": {"start_us": 0, "delay_us": 0}, "detail": true})",
                      &answer) == paceSuccess);
  const auto found = nlohmann::json::parse(answer);
  CHECK(found["ranks"] == 2);
  REQUIRE(found["rows"].size() == 1);
  CHECK(found["rows"][0]["algorithm"] == "chain");
  CHECK(found["rows"][0]["method"] == "simulated");
  CHECK(found["rows"][0]["time_us"].get<double>() == doctest::Approx(20000.5));
  CHECK(found["rows"][0]["busbw_gbs"].get<double>() == doctest::Approx(50).epsilon(0.001));
  CHECK(found["rows"][0]["busiest_link"] == "gpu0 -> gpu3");
  REQUIRE(found["rows"][0]["links"].size() == 1);
  CHECK(found["rows"][0]["links"][0]["bytes"] == 1e9);
  CHECK(found["trace"].size() == 3);
}

TEST_CASE("a cost model answers in place of a topology") {
  const char* answer = nullptr;
  REQUIRE(pacePredict(R"({"collective": "all_reduce", "ranks": 4, "sizes": [8, 65536], "model": {"start": 1.5}})",
                      &answer) == paceSuccess);
  const auto found = nlohmann::json::parse(answer);
  CHECK(found["rows"].size() == 14);
  for (const auto& row : found["rows"]) CHECK(row["method"] == "model");
}

TEST_CASE("every row that was simulated whole has its links where they are asked for") {
  const auto rows = [](const char* where) {
    const std::string request =
        std::string(R"({"collective": "all_reduce", "sizes": [1048576, 1073741824], "links": true, )") + where + "}";
    const char* answer = nullptr;
    REQUIRE(pacePredict(request.c_str(), &answer) == paceSuccess);
    return nlohmann::json::parse(answer)["rows"];
  };
  for (const auto& row : rows(R"("preset": "dgx1-v100")")) {
    double most = 0;
    for (const auto& link : row["links"]) most = std::max(most, link["share"].get<double>());
    CHECK(most == doctest::Approx(row["busiest_share"].get<double>()));
    CHECK(most > 0);
  }
  const auto symmetric = rows(R"("preset": "hgx-h200", "nodes": 128, "algorithm": "ring")");
  CHECK(symmetric[0]["links"].is_null());
  for (const auto& row : rows(R"("model": {"start": 1.5}, "ranks": 4)")) CHECK(row["links"].is_null());
}

TEST_CASE("stragglers are named") {
  const auto row = [](const char* machine) {
    const std::string request =
        std::string(R"({"collective": "broadcast", "preset": "dgx1-v100", "gpus": [0, 3], "sizes": [1000000],
                        "algorithm": "chain", "machine": )") +
        machine + "}";
    const char* answer = nullptr;
    REQUIRE(pacePredict(request.c_str(), &answer) == paceSuccess);
    return nlohmann::json::parse(answer)["rows"][0];
  };
  const auto time = [&](const char* machine) { return row(machine)["time_us"].get<double>(); };
  CHECK(time("{}") == doctest::Approx(0.5 + 20 + 2.5));
  CHECK(time(R"({"slow_gpus": {"0": 3}})") == doctest::Approx(1.5 + 20 + 6.5));
  constexpr const char* slow_link = R"({"slow_links": {"gpu0 -> gpu3": 3}})";
  CHECK(time(slow_link) == doctest::Approx(0.5 + 60 + 2.5));
  CHECK(row(slow_link)["busiest_link"] == "gpu0 -> gpu3");
  CHECK(row(slow_link)["busiest_share"].get<double>() == doctest::Approx(60 / 63.0));
}

TEST_CASE("each of a node's NVSwitches has links that may be slow") {
  for (const std::string name : {"nvswitch0", "nvswitch1"}) {
    const std::string request = R"({"collective": "broadcast", "preset": "hgx-h200", "gpus": [0, 1], "sizes": [1000000],
                                    "algorithm": "direct", "detail": true,
                                    "machine": {"slow_links": {"gpu0 -> )" +
                                name + R"(": 10}}})";
    const char* answer = nullptr;
    REQUIRE(pacePredict(request.c_str(), &answer) == paceSuccess);
    const auto links = nlohmann::json::parse(answer)["rows"][0]["links"];
    INFO(name);
    CHECK(links[0]["from"] == "gpu0");
    CHECK(links[0]["gbs"].get<double>() == doctest::Approx(name == "nvswitch0" ? 337.5 : 360));
  }
}

TEST_CASE("requests that make no sense say why") {
  CHECK(error_of(nullptr) == "request is NULL");
  CHECK(error_of("nonsense") == "the request is no JSON object");
  CHECK(error_of("[]") == "the request is no JSON object");
  CHECK(error_of(("{\"collective\": " + std::string(200'000, '[')).c_str()) == "the request is no JSON object");
  const auto with = [](const std::string& rest) {
    return error_of((R"({"collective": "broadcast", "sizes": [8], "preset": "dgx1-v100")" + rest + "}").c_str());
  };
  CHECK(with("") == "");
  CHECK(error_of(R"({"collective": "gossip"})") == "there is no collective 'gossip'");
  CHECK(error_of(R"({"collective": "send", "sizes": [8]})") == "there is no collective 'send'");
  CHECK(error_of(R"({"collective": "broadcast", "sizes": [8], "preset": "dgx9"})")
            .starts_with("there is no preset 'dgx9'"));
  CHECK(error_of(R"({"collective": "broadcast", "sizes": [-1], "preset": "rx1"})") ==
        "sizes must be a list of whole numbers >= 0, not [-1]");
  CHECK(with(R"(, "nodes": -1)") == "nodes must be a whole number, not -1");
  CHECK(with(R"(, "nodes": 1000000000)").starts_with("a cluster has 1 to 65536 nodes"));
  CHECK(with(R"(, "root": 8)") == "root 8 is none of the 8 ranks");
  CHECK(with(R"(, "root": -1)") == "root must be a whole number from 0 to 2147483647, not -1");
  CHECK(with(R"(, "root": 99999999999)") == "root must be a whole number from 0 to 2147483647, not 99999999999");
  CHECK(with(R"(, "ranks": 0)") == "0 ranks: there are 8 GPUs");
  CHECK(with(R"(, "ranks": 9)") == "9 ranks: there are 8 GPUs");
  CHECK(with(R"(, "gpus": [0, 8])") == "there is no GPU 8: this topology has GPUs 0 to 7");
  CHECK(with(R"(, "gpus": [])") == "no GPU is named");
  CHECK(with(R"(, "gpus": "all")") == "gpus must be a list of numbers");
  CHECK(with(R"(, "dtype": "complex")") == "there is no data type 'complex'");
  CHECK(with(R"(, "machine": {"start_us": -1})") == "start_us must be a number from 0 to 1000000000, not -1");
  CHECK(with(R"(, "machine": {"reduce_gbs": 0})") == "reduce_gbs must be a number from 1e-06 to 1000000000, not 0");
  CHECK(with(R"(, "machine": {"slow_gpus": {"0": -2}})") ==
        "GPU 0 cannot take -2 times as long: a factor is from 1e-06 to 1000000");
  CHECK(with(R"(, "machine": {"slow_gpus": {"9": 2}})") == "GPU 9 cannot take 2 times as long: there are GPUs 0 to 7");
  CHECK(with(R"(, "machine": {"slow_links": {"gpu0 -> gpu3": 1e308}})") ==
        "the link gpu0 -> gpu3 cannot take 1e+308 times as long: a factor is from 1e-06 to 1000000");
  CHECK(with(R"(, "machine": {"slow_links": {"gpu0 -> gpu3": 1e6}})") == "");
  CHECK(with(R"(, "machine": {"slow_links": {"gpu0 -> mars": 2}})") == "there is no link 'gpu0 -> mars'");
  CHECK(with(R"(, "color": "blue")") == "a request has no field 'color'");
  CHECK(error_of(R"({"collective": "broadcast", "sizes": [8], "ranks": 2, "model": {"speed": 1}})") ==
        "a cost model has no 'speed'");
  CHECK(error_of(R"({"collective": "broadcast", "sizes": [8], "ranks": 2, "model": {"bandwidth": 0}})")
            .starts_with("the cost model's bandwidth is 0"));
}

TEST_CASE("an answer stays until the next call of the same function") {
  const char* topology = nullptr;
  const char* prediction = nullptr;
  REQUIRE(paceTopology(R"({"preset": "dgx1-v100"})", &topology) == paceSuccess);
  const std::string before = topology;
  REQUIRE(pacePredict(R"({"collective": "broadcast", "preset": "dgx1-v100", "sizes": [1000]})", &prediction) ==
          paceSuccess);
  CHECK(topology != prediction);
  CHECK(topology == before);
}
