// What Paceline can serve in NCCL's place, and who serves it in this process.
//
// Who makes a unique id decides for all its ranks: an id of Paceline's makes a communicator of Paceline's, NCCL's own
// id makes one that NCCL serves alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::nccl {

enum class Service {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  send_recv,  // together: a message has two ends
};
inline constexpr int service_count = 9;

std::string_view name(Service service);
// The service of a function such as "ncclBcast", if it is one.
std::optional<Service> service_of(std::string_view function);

// Why a call of the function goes to NCCL though nothing forwards it.
const char* why_not_served(std::string_view function);

// A set of services, a bit each.
using Services = std::uint32_t;
constexpr Services bit(Service service) { return Services{1} << static_cast<int>(service); }
inline constexpr Services all_services = (Services{1} << service_count) - 1;
std::string names(Services services);

struct Choice {
  Services forwarded = 0;   // by PACELINE_NCCL_FORWARD
  bool on_gpus = false;     // what Paceline serves is GPU memory; else host memory, which tests take for it
  std::string why_nothing;  // empty: Paceline serves what is not forwarded; else why NCCL serves all
  std::string problem;      // a setting that cannot be read
};

// This process's choice, made once.
const Choice& choice();

// The parts of it, for tests. `cuda` is what paceDescribe("cuda") gives.
Choice choose(const char* forward, const char* cuda);
// For tests: the process's choice from now on.
void replace_choice(Choice other);

// By the launcher's variables: the job has ranks on several machines, or may have. Where none of them says how many are
// here, as Kubernetes' operators do not, MASTER_ADDR decides: ranks elsewhere do not come to a loopback address. Every
// other one may be another machine's, the own name too, for rank 0 of such a job is given its own.
bool job_may_span_machines();

}  // namespace paceline::nccl
