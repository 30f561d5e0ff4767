#include "bootstrap/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/file_text.h"

namespace paceline {
namespace {

bool read_number(std::string_view text, int& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && value >= 0;
}

class Variables {
 public:
  Variables(const Environment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  [[nodiscard]] std::string text(const char* variable) const {
    const char* value = environment_(variable);
    return value == nullptr ? std::string() : std::string(value);
  }
  [[nodiscard]] bool has(const char* variable) const { return !text(variable).empty(); }

  Status number(const char* variable, int& value) const {
    const std::string found = text(variable);
    if (read_number(found, value)) return {};
    if (found.empty())
      return Status(Code::invalid_usage,
                    fmt::format("{} started this process, but {} is missing", launcher_, variable));
    return Status(Code::invalid_usage, fmt::format("{}={} is not a number ({} set it)", variable, found, launcher_));
  }
  // Where absent or unreadable: the fallback.
  [[nodiscard]] int number_or(const char* variable, int fallback) const {
    int value = 0;
    return read_number(text(variable), value) ? value : fallback;
  }

 private:
  const Environment& environment_;
  std::string launcher_;
};

// A process, and when it began: process ids come again.
struct Process {
  std::string name;
  int parent = 0;
  std::string start;
};

std::optional<Process> process(int pid) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", pid)).value_or("");
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos || close < open) return {};
  Process found;
  found.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  for (int index = 3; rest >> field; ++index) {  // fields are numbered from 1 in proc(5); 3 is the state
    if (index == 4) read_number(field, found.parent);
    if (index == 22) found.start = field;
  }
  return found;
}

// The process that launched all ranks of this node, for launchers that do not name the job: the nearest ancestor that
// is a launcher, past shells and wrappers; else the parent.
std::string launching_process() {
  const auto mark = [](int pid) {
    const std::optional<Process> found = process(pid);
    return fmt::format("{} {}", pid, found ? found->start : std::string());
  };
  const int parent = ::getppid();
  int pid = parent;
  while (pid > 1) {
    const std::optional<Process> found = process(pid);
    if (!found) break;
    for (const std::string_view name : {"hydra_pmi_proxy", "mpiexec", "mpirun", "orted", "prted", "slurmstepd"})
      if (found->name.starts_with(name)) return mark(pid);
    pid = found->parent;
  }
  return mark(parent);
}

Result<Launch> from_paceline(const Configuration& configuration) {
  if (configuration.rank < 0) return Status(Code::invalid_usage, "PACELINE_SIZE is set, but PACELINE_RANK is missing");
  if (configuration.size < 0) return Status(Code::invalid_usage, "PACELINE_RANK is set, but PACELINE_SIZE is missing");
  Launch launch;
  launch.launcher = "PACELINE_RANK";
  launch.rank = configuration.rank;
  launch.size = configuration.size;
  return launch;
}

Result<Launch> from_torchrun(const Environment& environment) {
  const Variables variables(environment, "torchrun (RANK, WORLD_SIZE)");
  Launch launch;
  launch.launcher = "torchrun";
  PACE_TRY(variables.number("RANK", launch.rank));
  PACE_TRY(variables.number("WORLD_SIZE", launch.size));
  launch.one_node = variables.number_or("LOCAL_WORLD_SIZE", 0) == launch.size;
  launch.host = variables.text("MASTER_ADDR");
  if (!launch.host.empty()) {
    PACE_TRY(variables.number("MASTER_PORT", launch.port));
    launch.port = std::min(launch.port, largest_port) + 1;  // torch itself listens on MASTER_PORT
  }
  launch.job = fmt::format("torchrun {} {} {} {}", variables.text("TORCHELASTIC_RUN_ID"), launch.host, launch.port,
                           variables.text("TORCHELASTIC_RESTART_COUNT"));
  return launch;
}

Result<Launch> from_open_mpi(const Environment& environment) {
  const Variables variables(environment, "Open MPI");
  Launch launch;
  launch.launcher = "Open MPI";
  PACE_TRY(variables.number("OMPI_COMM_WORLD_RANK", launch.rank));
  PACE_TRY(variables.number("OMPI_COMM_WORLD_SIZE", launch.size));
  launch.one_node = variables.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", 0) == launch.size;
  for (const char* variable : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (launch.job.empty()) launch.job = variables.text(variable);
  launch.job = "ompi " + (launch.job.empty() ? launching_process() : launch.job);
  return launch;
}

Result<Launch> from_pmi(const Environment& environment) {
  const Variables variables(environment, "MPICH or Intel MPI (PMI_RANK)");
  Launch launch;
  launch.launcher = "MPICH or Intel MPI";
  PACE_TRY(variables.number("PMI_RANK", launch.rank));
  PACE_TRY(variables.number("PMI_SIZE", launch.size));
  launch.one_node = variables.number_or("MPI_LOCALNRANKS", 0) == launch.size;
  // Hydra names no job to its processes.
  launch.job = "pmi " + launching_process();
  return launch;
}

Result<Launch> from_slurm(const Environment& environment) {
  const Variables variables(environment, "srun");
  Launch launch;
  launch.launcher = "srun";
  PACE_TRY(variables.number("SLURM_PROCID", launch.rank));
  PACE_TRY(
      variables.number(variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", launch.size));
  launch.one_node = variables.number_or("SLURM_STEP_NUM_NODES", 0) == 1;
  const std::string job =
      variables.has("SLURM_JOB_ID") ? variables.text("SLURM_JOB_ID") : variables.text("SLURM_JOBID");
  launch.job =
      fmt::format("srun {} {} {}", job, variables.text("SLURM_STEP_ID"), variables.text("SLURM_RESTART_COUNT"));
  launch.host = first_host(variables.text("SLURM_STEP_NODELIST"));
  if (!launch.host.empty()) {
    int number = 0;
    read_number(job, number);
    // Below the ports that the kernel gives away by itself; steps of one job at the same time differ.
    launch.port = 10000 + (number % 1000 * 20 + variables.number_or("SLURM_STEP_ID", 0) % 20);
  }
  return launch;
}

Result<Launch> by_launcher(const Configuration& configuration, const Environment& environment) {
  const Variables variables(environment, "");
  if (configuration.rank >= 0 || configuration.size >= 0) return from_paceline(configuration);
  if (variables.has("RANK") && variables.has("WORLD_SIZE")) return from_torchrun(environment);
  if (variables.has("TORCHELASTIC_RUN_ID")) return from_torchrun(environment);  // says which of the two is missing
  if (variables.has("OMPI_COMM_WORLD_RANK")) return from_open_mpi(environment);
  if (variables.has("PMI_RANK") && !variables.has("SLURM_STEP_NODELIST")) return from_pmi(environment);
  // A batch script has SLURM_PROCID too, but is no step.
  if (variables.has("SLURM_PROCID") && variables.has("SLURM_STEP_NODELIST")) return from_slurm(environment);
  if (variables.has("PMI_RANK")) return from_pmi(environment);
  return Launch{"no launcher", 0, 1, "", 0, true, ""};
}

}  // namespace

Result<Launch> find_launch(const Configuration& configuration, const Environment& environment) {
  Result<Launch> launch = by_launcher(configuration, environment);
  PACE_TRY(launch.status());
  if (launch->size < 1 || launch->rank >= launch->size)
    return Status(Code::invalid_usage,
                  fmt::format("{}: rank {} of {} ranks cannot be", launch->launcher, launch->rank, launch->size));
  if (!configuration.address.empty()) PACE_TRY(split_address(configuration.address, launch->host, launch->port));
  return launch;
}

Status split_address(const std::string& text, std::string& host, int& port) {
  const std::size_t colon = text.rfind(':');
  const auto wrong = [&] {
    return Status(
        Code::invalid_usage,
        fmt::format("PACELINE_ADDRESS={} is no address: give host:port, such as 10.0.0.1:29500 or [::1]:29500", text));
  };
  if (colon == text.npos) return wrong();
  std::string_view name = std::string_view(text).substr(0, colon);
  const bool brackets = name.starts_with('[') && name.ends_with(']');
  if (brackets) name = name.substr(1, name.size() - 2);
  // An IPv6 address without brackets could end anywhere.
  if (name.empty() || (!brackets && name.find(':') != name.npos)) return wrong();
  int number = 0;
  if (!read_number(std::string_view(text).substr(colon + 1), number) || number < 1 || number > largest_port)
    return wrong();
  host = name;
  port = number;
  return {};
}

std::string first_host(const std::string& node_list) {
  std::string host;
  bool in_brackets = false, taken = false;  // of each bracket only its first name is taken
  for (const char c : node_list) {
    if (c == '[') {
      in_brackets = true;
      taken = false;
    } else if (c == ']') {
      in_brackets = false;
    } else if (in_brackets) {
      taken = taken || c == ',' || c == '-';
      if (!taken) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  return host;
}

}  // namespace paceline
