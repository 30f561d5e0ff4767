// A communicator's own reductions of paceline.h: sums of what is multiplied first.

#include <fmt/format.h>

#include "api/handle.h"
#include "base/reduction.h"

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceRedOpCreatePreMulSum(paceRedOp_t* op, const void* scalar, paceDataType_t type, paceComm_t comm) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(op, "op"));
    PACE_TRY(need(scalar, "scalar"));
    if (type < 0 || type >= paceNumTypes)
      return Status(Code::invalid_argument, fmt::format("there is no data type {}", static_cast<int>(type)));
    paceComm::Operator made;
    made.live = true;
    made.type = static_cast<DataType>(type);
    made.factor = factor_of_element(made.type, scalar);
    const std::lock_guard lock(comm->error_mutex);
    std::size_t number = 0;
    while (number < comm->operators.size() && comm->operators[number].live) ++number;
    if (number == comm->operators.size()) comm->operators.emplace_back();
    comm->operators[number] = made;
    *op = static_cast<paceRedOp_t>(paceNumOps + static_cast<int>(number));
    return {};
  });
}

paceResult_t paceRedOpDestroy(paceRedOp_t op, paceComm_t comm) {
  return entry(comm, [&]() -> Status {
    const std::lock_guard lock(comm->error_mutex);
    const int number = static_cast<int>(op) - paceNumOps;
    if (number < 0 || static_cast<std::size_t>(number) >= comm->operators.size() ||
        !comm->operators[static_cast<std::size_t>(number)].live)
      return Status(Code::invalid_argument, fmt::format("there is no operation {} to destroy", static_cast<int>(op)));
    comm->operators[static_cast<std::size_t>(number)].live = false;
    return {};
  });
}

}  // extern "C"
