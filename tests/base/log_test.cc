#include "base/log.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <regex>
#include <string>
#include <vector>

#include "base/configuration.h"
#include "base/written.h"

namespace paceline {
namespace {

using testing::written;

std::string this_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

TEST_CASE("a log line has time, rank, host, level and message, in one write") {
  const auto writes = written([] { write_log(LogLevel::warn, 3, "the lake is dry"); });
  REQUIRE(writes.size() == 1);
  const std::regex line(R"(paceline ([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3} rank 3 (\S+)  warn  the lake is dry\n)");
  std::smatch match;
  REQUIRE_MESSAGE(std::regex_match(writes[0], match, line), writes[0]);
  CHECK(match[2] == this_host());
}

TEST_CASE("a log line without a rank has a dash") {
  const auto writes = written([] { write_log(LogLevel::debug, -1, "hello"); });
  REQUIRE(writes.size() == 1);
  CHECK(writes[0].find(" rank - " + this_host() + "  debug  hello\n") != std::string::npos);
}

TEST_CASE("only what was asked for is logged") {
  // PACELINE_LOG of whoever runs the tests.
  const std::string& wanted = configuration().log;
  CHECK(logs(LogLevel::warn));
  CHECK(logs(LogLevel::info) == (wanted != "warn"));
  CHECK(logs(LogLevel::debug) == (wanted == "debug"));
  const auto writes = written([] {
    log(LogLevel::warn, 0, "{} of {}", 1, "three");
    log(LogLevel::debug, 0, "{}", 2);
  });
  REQUIRE(writes.size() == (logs(LogLevel::debug) ? 2 : 1));
  CHECK(writes[0].ends_with("  warn  1 of three\n"));
}

}  // namespace paceline
