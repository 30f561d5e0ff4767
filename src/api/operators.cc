// A communicator's own reductions of paceline.h: sums of what is multiplied first.

#include <fmt/format.h>

#include <atomic>

#include "api/handle.h"
#include "base/reduction.h"

using namespace paceline;
using namespace paceline::api;

namespace {

// One that no other communicator's operator has, nor one that was destroyed: where it does not belong it is refused.
int next_number() {
  constexpr unsigned numbers = paceMaxRedOp - paceNumOps;
  static std::atomic<unsigned> made{0};
  // Relaxed: only the number counts.
  return paceNumOps + static_cast<int>(made.fetch_add(1, std::memory_order_relaxed) % numbers);
}

}  // namespace

extern "C" {

paceResult_t paceRedOpCreatePreMulSum(paceRedOp_t* op, const void* scalar, paceDataType_t type, paceComm_t comm) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(op, "op"));
    PACE_TRY(need(scalar, "scalar"));
    if (type < 0 || type >= paceNumTypes)
      return Status(Code::invalid_argument, fmt::format("there is no data type {}", static_cast<int>(type)));
    paceComm::Operator made;
    made.type = static_cast<DataType>(type);
    made.factor = factor_of_element(made.type, scalar);
    const std::lock_guard lock(comm->error_mutex);
    int number = next_number();
    while (!comm->operators.try_emplace(number, made).second) number = next_number();  // after 2^31 of them
    *op = static_cast<paceRedOp_t>(number);
    return {};
  });
}

paceResult_t paceRedOpDestroy(paceRedOp_t op, paceComm_t comm) {
  return entry(comm, [&]() -> Status {
    const std::lock_guard lock(comm->error_mutex);
    if (comm->operators.erase(static_cast<int>(op)) == 0)
      return Status(Code::invalid_argument, fmt::format("there is no operation {} to destroy", static_cast<int>(op)));
    return {};
  });
}

}  // extern "C"
