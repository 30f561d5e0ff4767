#include "bootstrap/launch.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "bootstrap/ranks.h"
#include "bootstrap/threads.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

struct Directory {
  std::string path = "/tmp/paceline-test-XXXXXX";
  Directory() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Directory() { [[maybe_unused]] const int status = std::system(("rm -rf " + path).c_str()); }
  [[nodiscard]] std::string write(const std::string& text, mode_t mode) const {
    std::string file = path + "/secret";
    std::ofstream(file) << text;
    ::chmod(file.c_str(), mode);
    return file;
  }
};

Result<Rendezvous> rendezvous_with(const std::map<std::string, std::string>& variables,
                                   const Configuration& configuration = {}) {
  const auto environment = [&](const char* name) -> const char* {
    const auto place = variables.find(name);
    return place == variables.end() ? nullptr : place->second.c_str();
  };
  return rendezvous_from(configuration, environment, configuration.join_timeout);
}

std::map<std::string, std::string> torchrun(int rank, const char* local_size) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", "2"},
          {"LOCAL_WORLD_SIZE", local_size},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

}  // namespace

TEST_CASE("without a launcher there is one rank") { CHECK(rendezvous_with({})->size == 1); }

TEST_CASE("several nodes need a secret, and are told how to make one") {
  const Status status = rendezvous_with(torchrun(1, "1")).status();
  CHECK(status.code() == Code::invalid_usage);
  CHECK(status.message().find("openssl rand -hex 32") != std::string::npos);

  Configuration configuration;
  configuration.secret = "a secret";
  configuration.join_timeout = 7;
  const Result<Rendezvous> where = rendezvous_with(torchrun(1, "1"), configuration);
  REQUIRE(where.ok());
  CHECK(where->address == "127.0.0.1");
  CHECK(where->port == 29501);
  CHECK(where->secret == "a secret");
  CHECK(where->timeout == 7);
}

TEST_CASE("torchrun's port must leave one for rank 0, unless there is an address") {
  Configuration configuration;
  configuration.secret = "a secret";
  auto variables = torchrun(1, "1");
  variables["MASTER_PORT"] = "65534";
  CHECK(rendezvous_with(variables, configuration)->port == 65535);
  for (const char* port : {"65535", "65536", "2147483647"}) {
    variables["MASTER_PORT"] = port;
    const Status refused = rendezvous_with(variables, configuration).status();
    CHECK(refused.code() == Code::invalid_usage);
    CHECK(refused.message() ==
          "MASTER_PORT=" + std::string(port) +
              ": rank 0 listens on the port after it, which must be from 1 to 65535: give torchrun "
              "another --master-port, or set PACELINE_ADDRESS");
  }
  configuration.address = "127.0.0.1:4000";
  CHECK(rendezvous_with(variables, configuration)->port == 4000);
}

TEST_CASE("who needs no port may have the last one for torchrun") {
  auto variables = torchrun(0, "1");
  variables["MASTER_PORT"] = "65535";
  variables["WORLD_SIZE"] = "1";
  const Result<Rendezvous> one = rendezvous_with(variables);
  CHECK_MESSAGE(one.ok(), one.status().message());

  const Directory directory;
  ::setenv("XDG_RUNTIME_DIR", directory.path.c_str(), 1);
  variables = torchrun(0, "2");
  variables["MASTER_PORT"] = "65535";
  const Result<Rendezvous> one_node = rendezvous_with(variables);  // rank 0 writes the file, and does not wait
  ::unsetenv("XDG_RUNTIME_DIR");
  CHECK_MESSAGE(one_node.ok(), one_node.status().message());
}

TEST_CASE("without an address the variable to set is named") {
  Configuration configuration;
  configuration.secret = "a secret";
  const std::map<std::string, std::string> mpi = {
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  CHECK(rendezvous_with(mpi, configuration).status().message().find("PACELINE_ADDRESS=host:port") != std::string::npos);
}

TEST_CASE("rank 0 listens on the interface that was chosen") {
  Configuration configuration;
  configuration.secret = "a secret";
  configuration.interface = "lo";
  auto variables = torchrun(0, "1");
  variables["MASTER_ADDR"] = "node-a.example";
  CHECK(rendezvous_with(variables, configuration)->address == "127.0.0.1");
  variables["RANK"] = "1";
  CHECK(rendezvous_with(variables, configuration)->address == "node-a.example");
}

TEST_CASE("the secret's file: for this user only, white space at its end does not count") {
  const Directory directory;
  Configuration configuration;
  configuration.secret_file = directory.write("s3cret\n", 0600);
  CHECK(rendezvous_with(torchrun(1, "1"), configuration)->secret == "s3cret");
  configuration.secret_file = directory.write("s3cret\n", 0640);
  CHECK(rendezvous_with(torchrun(1, "1"), configuration).status().message().find("chmod 600") != std::string::npos);
  configuration.secret_file = directory.write("\n", 0600);
  CHECK(rendezvous_with(torchrun(1, "1"), configuration).status().message().find("is empty") != std::string::npos);
  configuration.secret_file = directory.path + "/none";
  CHECK(rendezvous_with(torchrun(1, "1"), configuration).status().message().find("No such file") != std::string::npos);
}

TEST_CASE("on one node the ranks need nothing from outside") {
  const Directory directory;
  ::setenv("XDG_RUNTIME_DIR", directory.path.c_str(), 1);
  const auto results = in_threads(2, [&](int rank) -> Result<std::shared_ptr<Session>> {
    Result<Rendezvous> where = rendezvous_with(torchrun(rank, "2"));
    PACE_TRY(where.status());
    return join(std::move(*where));
  });
  ::unsetenv("XDG_RUNTIME_DIR");
  for (const auto& joined : results) CHECK_MESSAGE(joined.ok(), joined.status().message());
}

TEST_CASE("a unique id brings ranks together, and leaves no thread behind") {
  const int threads = living_threads();
  const Result<Bytes> id = make_unique_id();
  REQUIRE(id.ok());
  CHECK(id->size() == 128);
  {
    const auto results = in_threads(3, [&](int rank) -> Result<std::shared_ptr<Session>> {
      Result<Rendezvous> where = rendezvous_from_unique_id(*id, rank, 3, 60);
      PACE_TRY(where.status());
      return join(std::move(*where));
    });
    for (const auto& joined : results) CHECK_MESSAGE(joined.ok(), joined.status().message());
  }
  CHECK(!rendezvous_from_unique_id(*id, 1, 3, 60)->listener.valid());
  CHECK(rendezvous_from_unique_id(*id, 0, 3, 60).status().code() == Code::invalid_usage);  // used already
  CHECK(threads_are_back_to(threads));
}

TEST_CASE("what is no unique id is refused") {
  Bytes id = *make_unique_id();
  CHECK(rendezvous_from_unique_id(std::span(id).first(127), 1, 2, 60).status().code() == Code::invalid_argument);
  CHECK(rendezvous_from_unique_id(Bytes(128), 1, 2, 60).status().code() == Code::invalid_argument);
  Bytes too_long = id;
  too_long[12] = std::byte{52};
  CHECK(rendezvous_from_unique_id(too_long, 1, 2, 60).status().code() == Code::invalid_argument);
  // Not to keep its listener.
  CHECK(rendezvous_from_unique_id(id, 0, 2, 60)->listener.valid());
}
