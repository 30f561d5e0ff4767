// The making of communicators by Paceline: how long it waits, and where there are no threads for it.
#include "nccl/births.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "api/address_limit.h"
#include "bootstrap/ranks.h"
#include "nccl/door.h"

using namespace paceline;
using namespace paceline::testing;

TEST_CASE("a rank is waited for as long as NCCL waits, unless the user set a limit") {
  Child child([](const Child::Say& say) {
    const auto limits = [] {
      return fmt::format("{} {}", nccl::patience().timeoutSeconds, nccl::patience().joinTimeoutSeconds);
    };
    (void)::unsetenv("PACELINE_TIMEOUT");
    (void)::unsetenv("PACELINE_JOIN_TIMEOUT");
    say(limits());
    (void)::setenv("PACELINE_TIMEOUT", "5", 1);
    say(limits());
    (void)::setenv("PACELINE_JOIN_TIMEOUT", "5", 1);
    say(limits());
  });
  for (const char* expected : {"86400 86400", "0 86400", "0 5"}) CHECK(child.line() == std::string(expected));
}

TEST_CASE("without a thread for each, a group makes none of its communicators") {
  Child child([](const Child::Say& say) {
    const Door door(has_engine, nullptr, nullptr);
    std::array<ncclComm_t, 400> comms{};
    if (!limit_addresses(std::size_t{1} << 30)) return;
    const ncclResult_t result = ncclCommInitAll(comms.data(), 400, nullptr);
    say(std::to_string(result) + " " + last_error());
    say(comms[0] == nullptr && comms[399] == nullptr ? "none" : "some");
  });
  CHECK(child.line() == "2 ncclGroupEnd: cannot start a thread for each of the 400 communicators that the group makes");
  CHECK(child.line() == "none");
}

TEST_CASE("without a thread, nothing is made behind the program's back, and its parent stays ready") {
  Child child([](const Child::Say& say) {
    const Door door(has_engine, nullptr, nullptr);
    ncclUniqueId id{};
    (void)ncclGetUniqueId(&id);
    ncclComm_t parent = nullptr;
    (void)ncclCommInitRank(&parent, 1, id, 0);
    ncclConfig_t config{};
    config.size = sizeof config;
    config.magic = NCCL_API_MAGIC;
    config.blocking = 0;
    if (!use_up_threads()) return;
    ncclComm_t made = parent;
    const ncclResult_t result = ncclCommGrow(parent, 2, nullptr, -1, &made, &config);
    say(std::to_string(result) + " " + last_error());
    ncclResult_t state = ncclInternalError;
    (void)ncclCommGetAsyncError(parent, &state);
    say(made == nullptr && state == ncclSuccess ? "none" : "some");
    say(std::to_string(ncclCommAbort(parent)));
  });
  CHECK(child.line() == "2 cannot start a thread that makes the nonblocking communicator");
  CHECK(child.line() == "none");
  CHECK(child.line() == "0");
}
