#include "services.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <sstream>
#include <utility>

#include "paceline/paceline.h"

namespace paceline::nccl {
namespace {

struct Row {
  std::string_view name;
  std::string_view functions[2];
};
constexpr Row rows[] = {
    {"all_reduce", {"ncclAllReduce"}},
    {"broadcast", {"ncclBroadcast", "ncclBcast"}},
    {"reduce", {"ncclReduce"}},
    {"all_gather", {"ncclAllGather"}},
    {"reduce_scatter", {"ncclReduceScatter"}},
    {"gather", {"ncclGather"}},
    {"scatter", {"ncclScatter"}},
    {"all_to_all", {"ncclAlltoAll"}},
    {"send_recv", {"ncclSend", "ncclRecv"}},
};
static_assert(std::size(rows) == service_count);

// One for the process; tests put others in its place, and a thread may still read an old one. Never destroyed: the
// thread of an aborted communicator may outlive main().
struct Choices {
  std::mutex mutex;
  std::deque<Choice> all{choose(std::getenv("PACELINE_NCCL_FORWARD"), paceDescribe("cuda"))};
  std::atomic<const Choice*> current{&all.front()};
};
Choices& choices() {
  static auto* made = new Choices;
  return *made;
}

long number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? -1 : std::strtol(text, nullptr, 10);
}

// Without asking for the address of a name, which may take long.
bool is_loopback(std::string_view host) {
  return host.empty() || host == "localhost" || host.starts_with("127.") || host == "::1";
}

}  // namespace

std::string_view name(Service service) { return rows[static_cast<int>(service)].name; }

std::optional<Service> service_of(std::string_view function) {
  for (int i = 0; i < service_count; ++i)
    for (std::string_view served : rows[i].functions)
      if (served == function) return static_cast<Service>(i);
  return {};
}

const char* why_not_served(std::string_view function) {
  return service_of(function) ? "Paceline serves it on GPU memory, by operators whose scalars lie in host memory"
                              : "Paceline does not serve it";
}

std::string names(Services services) {
  std::string text;
  for (int i = 0; i < service_count; ++i)
    if ((services & bit(static_cast<Service>(i))) != 0) text += (text.empty() ? "" : ", ") + std::string(rows[i].name);
  return text;
}

Choice choose(const char* forward, const char* cuda) {
  Choice made;
  std::istringstream list(forward == nullptr ? "" : forward);
  for (std::string word; std::getline(list, word, ',');) {
    if (word == "all") {
      made.forwarded = all_services;
      continue;
    }
    Services found = 0;
    for (int i = 0; i < service_count; ++i)
      if (rows[i].name == word) found = bit(static_cast<Service>(i));
    if (found == 0 && !word.empty() && made.problem.empty())
      made.problem =
          fmt::format("PACELINE_NCCL_FORWARD={}: '{}' is not among all, {}", forward, word, names(all_services));
    made.forwarded |= found;
  }
  if (made.forwarded == all_services)
    made.why_nothing = "PACELINE_NCCL_FORWARD says so";
  else if (cuda == nullptr)
    made.why_nothing = "Paceline has no engine for GPUs in this build or on this machine";
  made.on_gpus = cuda != nullptr && std::strstr(cuda, "\"devices\"") != nullptr;
  return made;
}

// Acquire: the choice's contents come before it.
const Choice& choice() { return *choices().current.load(std::memory_order_acquire); }

void replace_choice(Choice other) {
  const std::lock_guard lock(choices().mutex);
  choices().current.store(&choices().all.emplace_back(std::move(other)), std::memory_order_release);
}

bool job_may_span_machines() {
  const long ranks = number("WORLD_SIZE");
  const long nodes = number("SLURM_STEP_NUM_NODES");
  if (nodes > 1) return true;
  bool all_known = nodes == 1 && number("SLURM_STEP_NUM_TASKS") >= ranks;
  constexpr const char* launchers[][2] = {{"WORLD_SIZE", "LOCAL_WORLD_SIZE"},
                                          {"WORLD_SIZE", "LOCAL_SIZE"},
                                          {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                          {"PMI_SIZE", "MPI_LOCALNRANKS"}};
  for (const auto& [all, here] : launchers) {
    if (number(here) <= 0) continue;
    if (number(all) > number(here)) return true;
    all_known = all_known || number(all) >= ranks;
  }
  const char* meeting = std::getenv("MASTER_ADDR");
  return !all_known && ranks > 1 && std::getenv("RANK") != nullptr && meeting != nullptr && !is_loopback(meeting);
}

}  // namespace paceline::nccl
