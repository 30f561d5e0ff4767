#include "bootstrap/launcher.h"

#include <doctest/doctest.h>

#include <map>

using namespace paceline;

namespace {

using Variables = std::map<std::string, std::string>;

Result<Launch> launch(const Variables& variables, const Configuration& configuration = {}) {
  return find_launch(configuration, [&](const char* name) -> const char* {
    const auto place = variables.find(name);
    return place == variables.end() ? nullptr : place->second.c_str();
  });
}

Launch good(const Variables& variables, const Configuration& configuration = {}) {
  const Result<Launch> result = launch(variables, configuration);
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  return *result;
}

}  // namespace

TEST_CASE("no launcher: one rank") {
  CHECK(good({}).rank == 0);
  CHECK(good({}).size == 1);
}

TEST_CASE("torchrun") {
  Variables variables = {{"RANK", "5"},          {"WORLD_SIZE", "8"},      {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "n01"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "none"}};
  const Launch found = good(variables);
  CHECK(found.rank == 5);
  CHECK(found.size == 8);
  CHECK(found.host == "n01");
  CHECK(found.port == 29501);
  CHECK_FALSE(found.one_node);
  variables["LOCAL_WORLD_SIZE"] = "8";
  CHECK(good(variables).one_node);
  variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  CHECK(good(variables).job != found.job);
}

TEST_CASE("Open MPI, with the job's name where it has one") {
  const Launch found = good({{"OMPI_COMM_WORLD_RANK", "3"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                             {"PMIX_NAMESPACE", "prterun-a-77@1"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_NTASKS", "2"}});
  CHECK(found.rank == 3);
  CHECK(found.size == 4);
  CHECK(found.one_node);
  CHECK(found.job == "ompi prterun-a-77@1");
}

TEST_CASE("MPICH and Intel MPI, whose processes share the launching process") {
  const Variables variables = {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}};
  CHECK(good(variables).rank == 1);
  CHECK(good(variables).size == 4);
  CHECK(good(variables).one_node);
  CHECK(good(variables).job == good(variables).job);
  CHECK(good(variables).job.size() > 5);
}

TEST_CASE("srun: the step's own size, the first host, a port by job") {
  const Launch found = good({{"SLURM_PROCID", "6"},
                             {"SLURM_NTASKS", "99"},
                             {"SLURM_STEP_NUM_TASKS", "8"},
                             {"SLURM_STEP_NUM_NODES", "2"},
                             {"SLURM_STEP_NODELIST", "node[03-04]"},
                             {"SLURM_JOB_ID", "123456"},
                             {"SLURM_STEP_ID", "2"}});
  CHECK(found.rank == 6);
  CHECK(found.size == 8);
  CHECK(found.host == "node03");
  CHECK(found.port == 10000 + 456 * 20 + 2);
  CHECK_FALSE(found.one_node);
}

TEST_CASE("a batch script is no step of srun") {
  CHECK(good({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}).size == 1);
}

TEST_CASE("PACELINE_RANK and PACELINE_SIZE come first, PACELINE_ADDRESS before the launcher's") {
  Configuration configuration;
  configuration.rank = 1;
  configuration.size = 2;
  configuration.address = "10.0.0.1:4000";
  const Launch found = good({{"RANK", "5"}, {"WORLD_SIZE", "8"}}, configuration);
  CHECK(found.rank == 1);
  CHECK(found.size == 2);
  CHECK(found.host == "10.0.0.1");
  CHECK(found.port == 4000);
}

TEST_CASE("what is missing or no number is named") {
  CHECK(launch({{"OMPI_COMM_WORLD_RANK", "3"}}).status().message() ==
        "Open MPI started this process, but OMPI_COMM_WORLD_SIZE is missing");
  CHECK(launch({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}}).status().message() ==
        "PMI_RANK=x is not a number (MPICH or Intel MPI (PMI_RANK) set it)");
  CHECK(launch({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).status().message() ==
        "torchrun (RANK, WORLD_SIZE) started this process, but MASTER_PORT is missing");
  CHECK(launch({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}).status().message() ==
        "MPICH or Intel MPI: rank 4 of 4 ranks cannot be");
  Configuration configuration;
  configuration.rank = 1;
  CHECK(launch({}, configuration).status().message() == "PACELINE_RANK is set, but PACELINE_SIZE is missing");
}

TEST_CASE("addresses") {
  std::string host;
  int port = 0;
  CHECK(split_address("[fe80::1]:29500", host, port).ok());
  CHECK(host == "fe80::1");
  CHECK(port == 29500);
  CHECK(split_address("node-a:1", host, port).ok());
  CHECK(host == "node-a");
  for (const char* wrong : {"", "node-a", ":1", "node-a:", "node-a:0", "node-a:65536", "node-a:1x", "::1:5", "[]:5"})
    CHECK_MESSAGE(split_address(wrong, host, port).code() == Code::invalid_usage, std::string(wrong));
}

TEST_CASE("the first host of a Slurm node list") {
  CHECK(first_host("node[01-04,07],x3") == "node01");
  CHECK(first_host("x3,node[01-04]") == "x3");
  CHECK(first_host("r[2-3]n[5,7]-ib") == "r2n5-ib");
  CHECK(first_host("single") == "single");
  CHECK(first_host("").empty());
  CHECK(first_host("broken[1") == "broken1");
}
