#include "base/configuration.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace paceline {
namespace {

// The process's environment with these variables of Paceline's and no others, until the end of the scope.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<std::string, std::string>> variables) {
    for (const ConfigurationRow& row : configuration_rows()) {
      const std::string name(row.variable);
      const char* value = std::getenv(name.c_str());
      if (value != nullptr) before_.emplace_back(name, value);
      unsetenv(name.c_str());
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const ConfigurationRow& row : configuration_rows()) unsetenv(std::string(row.variable).c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> before_;
};

Configuration read(const std::string& variable, const std::string& value) {
  const Environment environment{{variable, value}};
  Configuration configuration;
  const Status status = read_configuration(configuration);
  CHECK_MESSAGE(status.ok(), status.message());
  return configuration;
}

}  // namespace

TEST_CASE("configuration: a limit of no seconds is none, nor one of so many that no clock counts them") {
  for (const std::string variable : {"PACELINE_TIMEOUT", "PACELINE_JOIN_TIMEOUT"}) {
    for (const char* seconds : {"0", "1.1e9"}) {
      const Environment environment{{variable.c_str(), seconds}};
      Configuration c;
      CHECK(read_configuration(c).message() ==
            variable + "=" + seconds + " cannot be read: it takes seconds, above 0 and up to 1e9");
    }
  }
}

TEST_CASE("configuration: a variable that is misspelt by a letter is told") {
  const auto told = [](const char* name) {
    setenv(name, "1", 1);
    std::vector<std::string> all = misspelt_variables();
    unsetenv(name);
    return all;
  };
  CHECK(told("PACELINE_TIMOUT") == std::vector<std::string>{"PACELINE_TIMOUT is no variable of Paceline's: "
                                                            "PACELINE_TIMEOUT is"});
  for (const char* slip : {"PACELINE_TIMEEOUT", "PACELINE_TIMEOUR", "PACELINE_ITMEOUT", "PACELINE_TIMEOUTS"})
    CHECK_MESSAGE(told(slip).size() == 1, slip);
  for (const char* other : {"PACELINE_TIMEOUT", "PACELINE_TIME", "PACELINE_OF_MINE", "PACELIN_TIMEOUT", "PACELINE_"})
    CHECK_MESSAGE(told(other).empty(), other);
}

TEST_CASE("configuration: what is not set has its default") {
  const Environment environment{};
  Configuration c;
  c.rank = 5;
  c.staging = 7;
  REQUIRE(read_configuration(c).ok());
  CHECK(c == Configuration());
}

TEST_CASE("configuration: the defaults that the table shows are those of the fields") {
  for (const ConfigurationRow& row : configuration_rows()) {
    if (row.fallback.empty()) continue;
    INFO(row.variable);
    CHECK(read(std::string(row.variable), std::string(row.fallback)) == Configuration());
  }
}

TEST_CASE("configuration: every variable reaches its field") {
  CHECK(read("PACELINE_RANK", "0").rank == 0);
  CHECK(read("PACELINE_RANK", "1023").rank == 1023);
  CHECK(read("PACELINE_SIZE", "8").size == 8);
  CHECK(read("PACELINE_ADDRESS", "[::1]:4000").address == "[::1]:4000");
  CHECK(read("PACELINE_SECRET", "a b=c").secret == "a b=c");
  CHECK(read("PACELINE_SECRET_FILE", "/run/secret").secret_file == "/run/secret");
  CHECK(read("PACELINE_INTERFACE", "10.0.0.0/8").interface == "10.0.0.0/8");
  CHECK(read("PACELINE_JOIN_TIMEOUT", "2.5").join_timeout == 2.5);
  CHECK(read("PACELINE_TIMEOUT", "1e3").timeout == 1000);
  CHECK(read("PACELINE_ALGORITHM", "ring").algorithm == "ring");
  CHECK(read("PACELINE_CHUNK", "65536").chunk == 65536);
  for (const char* choice : {"auto", "shm", "tcp"}) CHECK(read("PACELINE_TRANSPORT", choice).transport == choice);
  for (const char* choice : {"auto", "on", "off"}) CHECK(read("PACELINE_SINGLE_COPY", choice).single_copy == choice);
  for (const char* choice : {"auto", "off"}) CHECK(read("PACELINE_GPU_DIRECT", choice).gpu_direct == choice);
  for (const int blocks : {least_gpu_blocks, most_gpu_blocks})
    CHECK(read("PACELINE_GPU_BLOCKS", std::to_string(blocks)).gpu_blocks == blocks);
  CHECK(read("PACELINE_SPIN", "0").spin == 0);
  CHECK(read("PACELINE_STAGING", "4K").staging == 4096);
  for (const char* choice : {"warn", "info", "debug"}) CHECK(read("PACELINE_LOG", choice).log == choice);
}

TEST_CASE("configuration: bytes may end in K, M or G") {
  CHECK(read("PACELINE_CHUNK", "0").chunk == 0);
  CHECK(read("PACELINE_CHUNK", "3K").chunk == 3 << 10);
  CHECK(read("PACELINE_CHUNK", "3M").chunk == 3 << 20);
  CHECK(read("PACELINE_CHUNK", "3G").chunk == std::size_t{3} << 30);
  CHECK(read("PACELINE_CHUNK", "18446744073709551615").chunk == SIZE_MAX);
  CHECK(read("PACELINE_CHUNK", "17179869183G").chunk == SIZE_MAX >> 30 << 30);
  CHECK(read("PACELINE_STAGING", "1G").staging == largest_staging);
}

TEST_CASE("configuration: a value that cannot be read is an error that names it, and the default stands") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> junk = {
      {"PACELINE_RANK", {"-1", "one", "1.5", "0x1", " 1", "1 ", "+1", "2147483648"}},
      {"PACELINE_SIZE", {"-2", "four", "99999999999"}},
      {"PACELINE_JOIN_TIMEOUT", {"-1", "soon", "1s", "nan", "inf", "1e400", "1e10"}},
      {"PACELINE_TIMEOUT", {"-0.5", "never", "infinity", "-nan", "1,5"}},
      {"PACELINE_CHUNK", {"-1", "K", "1T", "1KB", "1.5M", "1k", "18446744073709551616", "17179869184G"}},
      {"PACELINE_TRANSPORT", {"SHM", "udp", "tcp "}},
      {"PACELINE_SINGLE_COPY", {"yes", "1", "of"}},
      {"PACELINE_GPU_BLOCKS", {"0", "3", "65", "-1", "many", "1.5"}},
      {"PACELINE_SPIN", {"-1", "x", "inf", "20us"}},
      {"PACELINE_STAGING", {"-1", "much", "1073741825", "2G", "17179869183G"}},
      {"PACELINE_LOG", {"error", "WARN", "2"}},
  };
  for (const auto& [variable, values] : junk) {
    for (const std::string& value : values) {
      INFO(variable, "=", value);
      const Environment environment{{variable, value}};
      Configuration c;
      const Status status = read_configuration(c);
      CHECK(status.code() == Code::invalid_argument);
      CHECK(status.message().rfind(variable + "=" + value + " cannot be read: it takes ", 0) == 0);
      CHECK(c == Configuration());
    }
  }
}

TEST_CASE("configuration: an error says what the variable takes") {
  const Environment environment{{"PACELINE_STAGING", "9G"}};
  Configuration c;
  CHECK(read_configuration(c).message() == "PACELINE_STAGING=9G cannot be read: it takes bytes, at most 1G");
}

TEST_CASE("configuration: a bad value keeps no other from being read; the first is named") {
  const Environment environment{{"PACELINE_SIZE", "x"}, {"PACELINE_RANK", "3"}, {"PACELINE_LOG", "loud"}};
  Configuration c;
  CHECK(read_configuration(c).message() == "PACELINE_SIZE=x cannot be read: it takes number");
  CHECK(c.rank == 3);
}

TEST_CASE("configuration: an empty variable counts as not set") {
  CHECK(read("PACELINE_TIMEOUT", "").timeout == 300);
  CHECK(read("PACELINE_TRANSPORT", "").transport == "auto");
}

TEST_CASE("configuration: every row has a variable of its own, a type and a help") {
  std::set<std::string_view> variables;
  for (const ConfigurationRow& row : configuration_rows()) {
    CHECK(row.variable.rfind("PACELINE_", 0) == 0);
    CHECK_FALSE(row.type.empty());
    CHECK_FALSE(row.help.empty());
    variables.insert(row.variable);
  }
  CHECK(variables.size() == configuration_rows().size());
}

}  // namespace paceline
