// Which calls are whose.
#include "nccl/services.h"

#include <doctest/doctest.h>
#include <stdlib.h>

using namespace paceline::nccl;

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
  ::setenv("WORLD_SIZE", "16", 1);
  ::setenv("LOCAL_WORLD_SIZE", "8", 1);
  CHECK(job_spans_machines());
  ::setenv("WORLD_SIZE", "8", 1);
  CHECK(!job_spans_machines());
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("LOCAL_WORLD_SIZE");
  CHECK(!job_spans_machines());
}
