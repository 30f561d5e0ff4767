// paceCommInitAll where this process lacks what it needs.
#include <doctest/doctest.h>

#include <vector>

#include "api/address_limit.h"
#include "paceline/paceline.h"
#include "transport/child.h"

namespace paceline::testing {
namespace {

TEST_CASE("a communicator whose ranks' threads cannot all start is an error") {
  Child child([] {
    std::vector<paceComm_t> comms(400);
    if (!limit_addresses(std::size_t{100} << 20)) return false;
    return paceCommInitAll(comms.data(), static_cast<int>(comms.size()), nullptr) != paceSuccess;
  });
  CHECK(child.ended_well());
}

}  // namespace
}  // namespace paceline::testing
