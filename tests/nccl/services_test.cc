// Which calls are whose.
#include "nccl/services.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace paceline::nccl;

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Of a launcher, and no other's, as long as this is there.
class Launched {
 public:
  explicit Launched(const Variables& variables) {
    for (const char* variable : {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "MASTER_ADDR",
                                 "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
      const char* before = std::getenv(variable);
      before_.emplace_back(variable, before == nullptr ? std::optional<std::string>() : before);
      ::unsetenv(variable);
    }
    for (const auto& [variable, value] : variables) ::setenv(variable.c_str(), value.c_str(), 1);
  }
  ~Launched() {
    for (const auto& [variable, value] : before_) {
      if (value)
        ::setenv(variable.c_str(), value->c_str(), 1);
      else
        ::unsetenv(variable.c_str());
    }
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

bool spans(const Variables& variables) {
  const Launched by(variables);
  return job_may_span_machines();
}

}  // namespace

TEST_CASE("every service has a name and its functions") {
  CHECK(names(all_services) ==
        "all_reduce, broadcast, reduce, all_gather, reduce_scatter, gather, scatter, all_to_all, send_recv");
  CHECK(service_of("ncclBcast") == Service::broadcast);
  CHECK(service_of("ncclRecv") == Service::send_recv);
  CHECK(!service_of("ncclMemAlloc"));
}

TEST_CASE("without an engine NCCL serves all") {
  CHECK(choose(nullptr, nullptr).why_nothing == "Paceline has no engine for GPUs in this build or on this machine");
  CHECK(choose(nullptr, "{}").why_nothing.empty());
  CHECK(choose(nullptr, R"({"devices":2})").on_gpus);
}

TEST_CASE("a list of services is forwarded") {
  const Choice made = choose("all_reduce,send_recv", "{}");
  CHECK(made.forwarded == (bit(Service::all_reduce) | bit(Service::send_recv)));
  CHECK(made.why_nothing.empty());
  CHECK(made.problem.empty());
}

TEST_CASE("all is forwarded") {
  CHECK(choose("all", "{}").why_nothing == "PACELINE_NCCL_FORWARD says so");
  CHECK(choose("all", "{}").forwarded == all_services);
}

TEST_CASE("a service that there is not is named, with those that there are") {
  CHECK(choose("allreduce", "{}").problem ==
        "PACELINE_NCCL_FORWARD=allreduce: 'allreduce' is not among all, all_reduce, broadcast, reduce, all_gather, "
        "reduce_scatter, gather, scatter, all_to_all, send_recv");
}

TEST_CASE("a launcher's ranks on other machines are seen") {
  CHECK(!spans({}));
  CHECK(spans({{"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}}));
  CHECK(!spans({{"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "8"}}));
  CHECK(spans({{"SLURM_STEP_NUM_NODES", "2"}}));
  CHECK(spans({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  CHECK(!spans({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}}));
}

TEST_CASE("where nobody says how many ranks are here they may be elsewhere, unless they meet at a loopback address") {
  const auto job = [](const char* address) {
    return Variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", address}};
  };
  for (const char* elsewhere : {"job-master-0", "10.0.0.7", "2001:db8::1"}) CHECK(spans(job(elsewhere)));
  for (const char* here : {"localhost", "127.0.0.1", "127.0.1.1", "::1", ""}) CHECK(!spans(job(here)));
  const auto with = [&](const Variables& more) {
    Variables all = job("node-a");
    all.insert(all.end(), more.begin(), more.end());
    return spans(all);
  };
  CHECK(!with({{"LOCAL_WORLD_SIZE", "2"}}));
  CHECK(!with({{"WORLD_SIZE", "1"}}));
  CHECK(!with({{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}));
  CHECK(with({{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  CHECK(!with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  CHECK(with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
  CHECK(!spans({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-a"}}));  // a process that starts the ranks itself
}
