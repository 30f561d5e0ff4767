// Explain, describe and traces, through the C API.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "algorithms/table.h"
#include "api/address_limit.h"
#include "base/configuration.h"
#include "comm/threads.h"
#include "transport/child.h"

namespace paceline::testing {
namespace {

TEST_CASE("explain says the same on every rank, and what is forced") {
  const Ranks communicator(4);
  pacePlanInfo_t infos[4];
  communicator.run([&](int rank, paceComm_t comm) {
    return expect(paceExplain(comm, "all_reduce", 1000000, paceFloat32, paceSum, 0, &infos[rank]));
  });
  for (const pacePlanInfo_t& info : infos) {
    CHECK(algorithm_named(info.algorithm) != nullptr);
    CHECK(std::string_view(info.algorithm) == infos[0].algorithm);
    CHECK(info.chunkBytes == infos[0].chunkBytes);
    CHECK(info.predictedMicroseconds == infos[0].predictedMicroseconds);
    CHECK(std::string_view(info.transport) == "shm");
    CHECK(info.channels >= 1);
    CHECK(std::string_view(info.protocol) == "staged");
  }
  REQUIRE(paceCommSetAlgorithm(communicator[0], "ring") == paceSuccess);
  REQUIRE(paceExplain(communicator[0], "all_reduce", 10, paceFloat32, paceSum, 0, &infos[0]) == paceSuccess);
  CHECK(std::string_view(infos[0].algorithm) == "ring");
  REQUIRE(paceCommSetAlgorithm(communicator[0], "ring protocol=single_copy") == paceSuccess);
  REQUIRE(paceExplain(communicator[0], "all_reduce", 10, paceFloat32, paceSum, 0, &infos[0]) == paceSuccess);
  CHECK(std::string_view(infos[0].protocol) == "single_copy");
  CHECK(infos[0].radix == 0);
  REQUIRE(paceCommSetAlgorithm(communicator[0], "knomial radix=3") == paceSuccess);
  REQUIRE(paceExplain(communicator[0], "broadcast", 10, paceFloat32, paceSum, 3, &infos[0]) == paceSuccess);
  CHECK(infos[0].radix == 3);
  REQUIRE(paceCommSetAlgorithm(communicator[0], "ring") == paceSuccess);
  // A ring does no broadcast: one is chosen.
  REQUIRE(paceExplain(communicator[0], "broadcast", 10, paceFloat32, paceSum, 3, &infos[0]) == paceSuccess);
  CHECK(std::string_view(infos[0].algorithm) != "ring");
}

// Whose plan would have millions of steps.
TEST_CASE("explain takes little memory for a count that no memory holds") {
  Child child([] {
    const Ranks communicator(4);
    if (!limit_addresses(std::size_t{64} << 20)) return false;
    for (const char* collective : {"all_reduce", "broadcast", "all_gather", "all_to_all", "scatter"}) {
      pacePlanInfo_t info;
      if (paceExplain(communicator[0], collective, std::size_t{1} << 42, paceInt8, paceSum, 0, &info) != paceSuccess)
        return false;
      if (info.channels < 1 || info.predictedMicroseconds < 1e7) return false;
    }
    return true;
  });
  CHECK(child.ended_well());
}

TEST_CASE("explain checks its arguments") {
  const Ranks communicator(1);
  pacePlanInfo_t info;
  CHECK(paceExplain(nullptr, "all_reduce", 1, paceInt8, paceSum, 0, &info) == paceInvalidArgument);
  CHECK(paceExplain(communicator[0], nullptr, 1, paceInt8, paceSum, 0, &info) == paceInvalidArgument);
  CHECK(paceExplain(communicator[0], "all_reduce", 1, paceInt8, paceSum, 0, nullptr) == paceInvalidArgument);
  CHECK(paceExplain(communicator[0], "send", 1, paceInt8, paceSum, 0, &info) == paceInvalidArgument);
  CHECK(paceExplain(communicator[0], "broadcast", 1, paceInt8, paceSum, 1, &info) == paceInvalidArgument);
  CHECK(paceCommSetAlgorithm(communicator[0], "none") == paceInvalidArgument);
  CHECK(paceCommSetAlgorithm(communicator[0], nullptr) == paceSuccess);
  REQUIRE(paceExplain(communicator[0], "barrier", 0, paceInt8, paceSum, 0, &info) == paceSuccess);
  CHECK(std::string_view(info.transport) == "local");
}

TEST_CASE("a profile is checked as communicators check the one in their file") {
  nlohmann::json profile = nlohmann::json::parse(paceTuningFile());
  profile.update({{"format", 2}, {"settings", nlohmann::json::array()}});
  CHECK(paceCheckTuning(profile.dump().c_str()) == paceSuccess);
  profile["settings"].push_back({{"ranks", 2}});
  CHECK(paceCheckTuning(profile.dump().c_str()) == paceInvalidArgument);
  CHECK(std::string_view(paceGetLastError(nullptr)) ==
        "the profile has a setting without transport, ranks, model, measured and table");
  profile["fingerprint"] = "0";
  profile["settings"].clear();
  CHECK(paceCheckTuning(profile.dump().c_str()) == paceInvalidArgument);
  CHECK(std::string_view(paceGetLastError(nullptr)) == "it was made on another machine");
  CHECK(paceCheckTuning(nullptr) == paceInvalidArgument);
}

TEST_CASE("a communicator whose calls on GPU memory go through host memory has no table for them") {
  const Ranks communicator(1);
  const char* table = "";
  CHECK(paceCommGpuTable(nullptr, &table) == paceInvalidArgument);
  CHECK(paceCommGpuTable(communicator[0], nullptr) == paceInvalidArgument);
  CHECK(paceCommGpuTable(communicator[0], &table) == paceUnsupported);
  CHECK(table == nullptr);
}

TEST_CASE("descriptions are JSON and whole") {
  const auto rows = nlohmann::json::parse(paceDescribe("algorithms"));
  REQUIRE(rows.size() == algorithms().size());
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows[i]["measured"] == algorithms()[i].measured);
  CHECK(nlohmann::json::parse(paceDescribe("configuration")).size() == configuration_rows().size());
  CHECK(nlohmann::json::parse(paceDescribe("build")).is_object());
  CHECK(paceDescribe("weather") == nullptr);
  CHECK(paceDescribe(nullptr) == nullptr);
}

TEST_CASE("calls on GPU memory are there exactly where the build finds a GPU") {
  const auto devices = nlohmann::json::parse(paceDescribe("build"))["cuda"]["devices"];
  const char* described = paceDescribe("cuda");
  CHECK((described == nullptr) == devices.empty());
  if (described != nullptr) CHECK(nlohmann::json::parse(described)["devices"] == devices.size());
}

class TemporaryFile {
 public:
  TemporaryFile() {
    descriptor_ = ::mkstemp(path_.data());
    REQUIRE(descriptor_ >= 0);
  }
  ~TemporaryFile() {
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/paceline-trace-XXXXXX";
  int descriptor_ = -1;
};

TEST_CASE("a trace is JSON that tells every message's call, and ends") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    const TemporaryFile file;
    PACE_EXPECT(paceTraceStop(comm, file.path().c_str()), paceInvalidUsage);
    PACE_EXPECT(paceTraceStart(comm));
    std::vector<int> values(100000, 1);
    PACE_EXPECT(paceAllReduce(values.data(), values.data(), values.size(), paceInt32, paceSum, comm, nullptr));
    PACE_EXPECT(paceTraceStart(comm), paceInvalidUsage);  // and the open one goes on
    PACE_EXPECT(paceTraceStop(comm, file.path().c_str()));
    PACE_EXPECT(paceAllReduce(values.data(), values.data(), values.size(), paceInt32, paceSum, comm, nullptr));
    PACE_REQUIRE(values == std::vector<int>(100000, 9));
    std::ifstream stream(file.path());
    const auto events = nlohmann::json::parse(stream, nullptr, false);
    PACE_REQUIRE(events.is_array());
    std::size_t sends = 0;
    for (const auto& event : events) {
      PACE_REQUIRE(event["pid"] == rank);
      PACE_REQUIRE(event["dur"].get<double>() >= 0);
      PACE_REQUIRE(event["args"]["call"] == "all-reduce #1 of 100000 int32, sum");
      sends += event["name"] == "send" ? 1 : 0;
    }
    PACE_REQUIRE(sends > 0);
    return "";
  });
}

TEST_CASE("a trace has copies, and says which messages were folded") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    const TemporaryFile file;
    PACE_EXPECT(paceCommSetAlgorithm(comm, "ring"));
    PACE_EXPECT(paceTraceStart(comm));
    const std::vector<int> values(1000, 1);
    std::vector<int> sums(1000);
    std::vector<int> all(2000);
    PACE_EXPECT(paceReduceScatter(values.data(), sums.data(), 500, paceInt32, paceSum, comm, nullptr));
    PACE_EXPECT(paceAllGather(values.data(), all.data(), 1000, paceInt32, comm, nullptr));
    PACE_EXPECT(paceTraceStop(comm, file.path().c_str()));
    std::ifstream stream(file.path());
    std::map<std::string, int> seen;
    for (const auto& event : nlohmann::json::parse(stream)) {
      const bool reduces = event["args"].value("reduces", false);
      const bool first = event["args"]["call"].get<std::string>().starts_with("reduce-scatter");
      if (event["name"] == "recv") PACE_REQUIRE(reduces == first);
      if (event["name"] == "copy") PACE_REQUIRE(event["args"]["peer"] == rank && event["args"]["bytes"] == 4000);
      ++seen[event["name"]];
    }
    PACE_REQUIRE(seen["recv"] == 2 && seen["send"] == 2 && seen["copy"] == 1);
    return "";
  });
}

TEST_CASE("a trace of nothing is an empty array; one that cannot be written is an error") {
  const Ranks communicator(1);
  const TemporaryFile file;
  REQUIRE(paceTraceStart(communicator[0]) == paceSuccess);
  CHECK(paceTraceStop(communicator[0], file.path().c_str()) == paceSuccess);
  std::ifstream stream(file.path());
  CHECK(nlohmann::json::parse(stream) == nlohmann::json::array());
  REQUIRE(paceTraceStart(communicator[0]) == paceSuccess);
  CHECK(paceTraceStop(communicator[0], nullptr) == paceInvalidArgument);
  CHECK(paceTraceStop(communicator[0], "/nowhere/at/all") == paceSystemError);
  REQUIRE(paceTraceStart(communicator[0]) == paceSuccess);
  CHECK(paceTraceStop(communicator[0], "/dev/full") == paceSystemError);
}

TEST_CASE("a long trace that finds the disk full is an error that names the file, which is closed") {
  const Ranks communicator(2);
  communicator.run([](int, paceComm_t comm) -> std::string {
    PACE_EXPECT(paceTraceStart(comm));
    std::vector<int> values(1000, 1);
    for (int i = 0; i < 50; ++i)
      PACE_EXPECT(paceAllReduce(values.data(), values.data(), values.size(), paceInt32, paceMax, comm, nullptr));
    PACE_EXPECT(paceTraceStop(comm, "/dev/full"), paceSystemError);
    PACE_REQUIRE(std::string(paceGetLastError(comm)) == "writing the trace to /dev/full: No space left on device");
    return "";
  });
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    CHECK(std::filesystem::read_symlink(entry.path(), gone) != "/dev/full");
  }
}

}  // namespace
}  // namespace paceline::testing
