#include "insight.h"

#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "base/of_thread.h"
#include "communicator.h"
#include "errors.h"
#include "nccl_api.h"
#include "paceline/paceline.h"
#include "real_library.h"
#include "search.h"
#include "services.h"
#include "serving.h"

namespace paceline::nccl {
namespace {

// Which version we declare: what we stand in for where there is no NCCL.
constexpr int declared_version = 23007;

int version_stood_for() { return real() == nullptr ? declared_version : real()->version; }

struct Answer {
  std::string served_by;
  std::string why;
};

Answer by_nccl(const char* function, bool has, const std::string& why) {
  if (real() == nullptr) return {"nobody", why + ", and " + why_no_real()};
  if (!has) return {"nobody", fmt::format("{} is not in NCCL {}", function, version_text(real()->version))};
  return {"nccl", why};
}

// A call: Paceline's unless something speaks against it.
Answer of_call(const char* function, bool has, const std::string& nothing) {
  const auto service = service_of(function);
  if (!nothing.empty()) return by_nccl(function, has, nothing);
  if (service && (choice().forwarded & bit(*service)) != 0)
    return by_nccl(function, has, "PACELINE_NCCL_FORWARD says so");
  return {"paceline", "on GPUs of one machine"};
}

nlohmann::json functions() {
  const std::string nothing = why_ids_are_nccls();
  auto rows = nlohmann::json::array();
  const Real none;
  const Real& library = real() == nullptr ? none : *real();
  auto add = [&](const char* function, const Answer& answer) {
    rows.push_back({{"name", function}, {"served_by", answer.served_by}, {"why", answer.why}});
  };
#define PACE_NCCL_CALL_ROW(since, result, name, parameters, arguments) \
  add(#name, of_call(#name, library.name != nullptr, nothing));
#define PACE_NCCL_OWN_ROW(since, result, name, parameters, arguments) add(#name, {"paceline", "about this library"});
#define PACE_NCCL_ALONE_ROW(since, result, name, parameters, arguments) \
  add(#name, by_nccl(#name, library.name != nullptr, "Paceline does not serve it"));
  PACE_NCCL_CALLS(PACE_NCCL_CALL_ROW)
  PACE_NCCL_GROUPS(PACE_NCCL_CALL_ROW)
  PACE_NCCL_BIRTHS(PACE_NCCL_CALL_ROW)
  PACE_NCCL_LIFE(PACE_NCCL_CALL_ROW)
  PACE_NCCL_INSIGHT(PACE_NCCL_OWN_ROW)
  PACE_NCCL_FORWARDED(PACE_NCCL_ALONE_ROW)
  PACE_NCCL_QUESTIONS(PACE_NCCL_ALONE_ROW)
  PACE_NCCL_PLAIN(PACE_NCCL_ALONE_ROW)
#undef PACE_NCCL_CALL_ROW
#undef PACE_NCCL_OWN_ROW
#undef PACE_NCCL_ALONE_ROW
  return rows;
}

bool wants_line() {
  const char* level = std::getenv("NCCL_DEBUG");
  if (level == nullptr) return false;
  for (const char* wanted : {"VERSION", "INFO", "TRACE"})
    if (::strcasecmp(wanted, level) == 0) return true;
  return false;
}

void say(const std::string& sentence) {
  char host[256] = "";
  (void)::gethostname(host, sizeof host - 1);
  std::fputs(fmt::format("{}:{} [paceline] NCCL INFO {}\n", host, ::getpid(), sentence).c_str(), stdout);
  std::fflush(stdout);
}

std::string who_serves_what() {
  const std::string nothing = why_ids_are_nccls();
  const std::string who = real() == nullptr ? "no NCCL beside it"
                                            : fmt::format("NCCL {} at {}", version_text(real()->version), real()->path);
  const std::string what = !nothing.empty()
                               ? "NCCL serves all calls: " + nothing
                               : "Paceline serves " + names(all_services & ~choice().forwarded) + "; NCCL the rest";
  return fmt::format("Paceline {}.{}.{}, {}: {}", PACE_MAJOR, PACE_MINOR, PACE_PATCH, who, what);
}

}  // namespace

void announce() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (wants_line()) say(who_serves_what());
  });
}

void announce_handover(int ranks, const std::string& why) {
  if (wants_line()) say(fmt::format("a communicator of {} ranks: NCCL serves all its calls: {}", ranks, why));
}

}  // namespace paceline::nccl

using namespace paceline::nccl;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return fail(nullptr, ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = version_stood_for();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "a CUDA call failed";
    case ncclSystemError: return "a call of the operating system failed";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "another rank left, or the network failed";
    case ncclInProgress: return "in progress";
    case ncclTimeout: return "a rank did not answer within the timeout";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (is_nccls(comm)) comm = nullptr;  // or none, as a program has whose making failed: NCCL does not look at it
  auto& copy = paceline::of_thread<std::string, struct LastAskedFor>();
  copy = last_sentence(comm);
  if (!copy.empty()) return copy.c_str();
  const Real* library = real();
  if (library == nullptr || library->ncclGetLastError == nullptr) return "";
  return library->ncclGetLastError(comm == nullptr ? nullptr : real_of(comm));
}

void ncclResetDebugInit() {
  if (const Real* library = real(); library != nullptr && library->ncclResetDebugInit != nullptr)
    library->ncclResetDebugInit();
}

const char* paceNcclDescribe() {
  auto& text = paceline::of_thread<std::string, struct Description>();
  const Real* library = real();
  nlohmann::json state = {{"path", own_path()},
                          {"stands_in_for", version_text(version_stood_for())},
                          {"real", nullptr},
                          {"why_no_real", why_no_real()},
                          {"why_nccl_serves_all", why_ids_are_nccls()},
                          {"problem", choice().problem},
                          {"functions", functions()}};
  if (library != nullptr) state["real"] = {{"path", library->path}, {"version", version_text(library->version)}};
  // Paths and settings need not be UTF-8, and no exception may leave this.
  text = state.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.c_str();
}

}  // extern "C"

PACE_NCCL_INSIGHT(PACE_NCCL_TWIN)
