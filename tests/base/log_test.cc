#include "base/log.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <regex>
#include <string>
#include <vector>

#include "base/configuration.h"
#include "base/file_descriptor.h"

namespace paceline {
namespace {

// What `speak` writes to standard error, write by write.
template <class Speak>
std::vector<std::string> written(const Speak& speak) {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends.data()) == 0);  // keeps writes apart
  const FileDescriptor here(ends[0]);
  FileDescriptor there(ends[1]);
  const FileDescriptor before(dup(STDERR_FILENO));
  REQUIRE(dup2(there.get(), STDERR_FILENO) >= 0);
  speak();
  dup2(before.get(), STDERR_FILENO);
  std::vector<std::string> writes;
  std::array<char, 4096> text{};
  for (ssize_t got = 0; (got = recv(here.get(), text.data(), text.size(), 0)) > 0;)
    writes.emplace_back(text.data(), static_cast<std::size_t>(got));
  return writes;
}

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
