#include "serving.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "communicator.h"
#include "errors.h"
#include "insight.h"
#include "real_library.h"

namespace paceline::nccl {
namespace {

// What each rank tells the others.
struct Facts {
  Services forwarded = 0;
  std::uint8_t engine = 0;  // Paceline serves GPU memory there
  std::uint8_t direct = 0;  // and between the ranks' GPUs themselves
  std::uint8_t real_in_reach = 0;
};

Facts my_facts(paceComm_t pace) {
  Facts facts;
  facts.forwarded = choice().forwarded;
  facts.engine = choice().why_nothing.empty() ? 1 : 0;
  int direct = 1;
  if (choice().on_gpus && paceCommGpuDirect(pace, &direct) != paceSuccess) direct = 0;
  facts.direct = static_cast<std::uint8_t>(direct);
  facts.real_in_reach = real_in_reach() ? 1 : 0;
  return facts;
}

// Why NCCL serves all calls of the communicator; empty: it does not.
std::string why_nccl_serves_all(paceComm_t pace, const std::vector<Facts>& facts) {
  int here = 0;
  if (paceCommNodeCount(pace, &here) != paceSuccess || here != static_cast<int>(facts.size()))
    return "the ranks are on several machines";
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank].engine == 0) return fmt::format("Paceline has no engine for GPUs on rank {}", rank);
    if (facts[rank].direct == 0) return fmt::format("calls on rank {}'s GPU would go through host memory", rank);
  }
  return {};
}

// Who serves what; `why`: NCCL serves all, and the reason.
ncclResult_t share_out(ncclComm* made, std::string& why) {
  const Facts mine = my_facts(made->pace);
  std::vector<Facts> facts(static_cast<std::size_t>(made->ranks));
  if (paceResult_t told = paceAllGather(&mine, facts.data(), sizeof mine, paceUint8, made->pace, nullptr);
      told != paceSuccess)
    return failed_in_paceline(made, told);
  for (std::size_t rank = 1; rank < facts.size(); ++rank)
    if (facts[rank].forwarded != facts[0].forwarded)
      return fail(made, ncclInvalidUsage,
                  fmt::format("PACELINE_NCCL_FORWARD differs: rank 0 forwards [{}], rank {} [{}]",
                              names(facts[0].forwarded), rank, names(facts[rank].forwarded)));
  made->forwarded = mine.forwarded;
  why = why_nccl_serves_all(made->pace, facts);
  if (why.empty() && made->forwarded == 0) return ncclSuccess;

  const std::string need = why.empty() ? "PACELINE_NCCL_FORWARD says so" : why;
  for (std::size_t rank = 0; rank < facts.size(); ++rank)
    if (facts[rank].real_in_reach == 0) {
      if (static_cast<int>(rank) == made->rank) return fail_without_real(made, "the making of the communicator", need);
      return fail(made, ncclInvalidUsage,
                  fmt::format("the making of the communicator needs NCCL itself ({}), and rank {} has none: see "
                              "PACELINE_NCCL_LIBRARY",
                              need, rank));
    }
  if (!why.empty()) announce_handover(made->ranks, why);
  return make_real({made}, "the making of the communicator");
}

}  // namespace

std::string why_ids_are_nccls() {
  if (!choice().why_nothing.empty()) return choice().why_nothing;
  // Programs that set it pass no id on: each rank asks for its own, and NCCL makes them alike by the variable.
  const char* meeting = std::getenv("NCCL_COMM_ID");
  if (meeting != nullptr && *meeting != '\0')
    return "NCCL_COMM_ID says where the ranks meet, each with an id of its own";
  const char* interface = std::getenv("PACELINE_INTERFACE");
  if (job_may_span_machines() && (interface == nullptr || *interface == '\0'))
    return "the job's ranks are on several machines, or may be where LOCAL_WORLD_SIZE does not say how many are here, "
           "and PACELINE_INTERFACE does not say where they can meet";
  return {};
}

bool is_pacelines(const ncclUniqueId& id) { return std::memcmp(id.internal, "PACEID", 6) == 0; }

ncclResult_t agree(ncclComm* made, paceComm_t pace) {
  made->pace = pace;
  if (is_unwanted(made)) return fail_unwanted();  // the others, who still have to agree, are told by its end
  std::string why_all;
  const ncclResult_t result = share_out(made, why_all);
  if (result != ncclSuccess || !why_all.empty()) {
    (void)paceCommDestroy(pace);
    made->pace = nullptr;
  }
  return result;
}

}  // namespace paceline::nccl
