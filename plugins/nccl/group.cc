#include "group.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/all_or_none.h"
#include "base/of_thread.h"
#include "errors.h"
#include "paceline/paceline.h"
#include "real_library.h"

namespace paceline::nccl {
namespace {

// One thread a communicator: each waits for ranks that another one makes. None: the threads cannot be had.
std::optional<ncclResult_t> run_together(const std::vector<std::function<ncclResult_t()>>& births) {
  std::vector<ncclResult_t> results(births.size(), ncclSuccess);
  const auto can = [](std::size_t) { return true; };
  if (all_or_none(births.size(), can, [&](std::size_t i) { results[i] = births[i](); })) return {};
  ncclResult_t result = ncclSuccess;
  for (ncclResult_t one : results) result = worse(result, one);
  return result;
}

ncclResult_t end_of_real(std::vector<ncclComm*>& forwarded) {
  const ncclResult_t result = from_real(forwarded, real()->ncclGroupEnd());
  forwarded.clear();
  return result;
}

ncclResult_t run_deferred(const std::vector<Deferred>& calls) {
  std::vector<ncclComm*> comms, missing;
  for (const Deferred& call : calls)
    if (std::find(comms.begin(), comms.end(), call.comm) == comms.end()) comms.push_back(call.comm);
  std::copy_if(comms.begin(), comms.end(), std::back_inserter(missing), [](ncclComm* comm) { return !real_of(comm); });
  // Where this process lacks one of the functions, that is the one to name.
  auto needed = std::find_if(calls.begin(), calls.end(), [](const Deferred& call) { return !call.exists; });
  if (needed == calls.end()) needed = calls.begin();
  if (!missing.empty())
    if (ncclResult_t made = make_real(missing, needed->function, needed->exists); made != ncclSuccess) return made;
  ncclResult_t result = real()->ncclGroupStart();
  for (const Deferred& call : calls) result = worse(result, call.call());
  return worse(result, end_of_real(comms));
}

ncclResult_t end_of_paceline(std::vector<ncclComm*>& served) {
  const paceResult_t ended = paceGroupEnd();
  const ncclResult_t result = ended == paceSuccess ? ncclSuccess : failed_in_paceline(served, ended);
  served.clear();
  return result;
}

// The communicators of the group. One whose threads cannot all be had is spoiled.
ncclResult_t make_all(Group& ending) {
  const auto births = std::exchange(ending.births, {});
  // On this thread the calls of a making would only be queued, in the library's group that is open here.
  if (births.size() == 1 && !ending.paceline_open && !ending.real_open) return births[0]();
  if (const std::optional<ncclResult_t> made = run_together(births)) return *made;
  ending.error = fail(nullptr, ncclSystemError,
                      fmt::format("ncclGroupEnd: cannot start a thread for each of the {} communicators that the group "
                                  "makes",
                                  births.size()));
  return ending.error;
}

// The blocking ones of a communicator would wait for the others, which begin after them.
ncclResult_t refuse_both() {
  return fail(nullptr, ncclInvalidArgument, "one group makes blocking or nonblocking communicators, not both");
}

// A group with a call that fails its checks runs none of them.
void end_paceline_unrun() {
  (void)paceBarrier(nullptr, nullptr);
  (void)paceGroupEnd();
}
void end_real_unrun() {
  (void)real()->ncclAllReduce(nullptr, nullptr, 0, ncclInt8, ncclSum, nullptr, nullptr);
  (void)real()->ncclGroupEnd();
}

ncclResult_t simulate_real(const std::vector<ncclComm*>& forwarded, ncclSimInfo_t* info) {
  if (real()->ncclGroupSimulateEnd != nullptr) return from_real(forwarded, real()->ncclGroupSimulateEnd(info));
  end_real_unrun();
  return fail_to_forward(forwarded, "ncclGroupSimulateEnd");
}

ncclResult_t end_unrun(const Group& spoiled) {
  if (spoiled.paceline_open) end_paceline_unrun();
  if (spoiled.real_open) end_real_unrun();
  for (const std::function<void(ncclResult_t)>& drop : spoiled.drops) drop(spoiled.error);
  for (const std::function<ncclResult_t()>& ending : spoiled.endings) (void)ending();
  return spoiled.error;
}

}  // namespace

Group& group() { return of_thread<Group>(); }

bool waits_for_real(const ncclComm* comm) {
  const std::vector<Deferred>& calls = group().deferred;
  return std::any_of(calls.begin(), calls.end(), [&](const Deferred& call) { return call.comm == comm; });
}

ncclResult_t join_paceline_group(ncclComm* comm) {
  Group& here = group();
  if (here.depth == 0) return ncclSuccess;
  join(here.served, comm);
  if (here.paceline_open) return ncclSuccess;
  here.paceline_open = true;
  return static_cast<ncclResult_t>(paceGroupStart());
}

ncclResult_t join_real_group(ncclComm* comm) {
  Group& here = group();
  if (here.depth == 0) return ncclSuccess;
  join(here.forwarded, comm);
  if (here.real_open) return ncclSuccess;
  here.real_open = true;
  return from_real(comm, real()->ncclGroupStart());
}

ncclResult_t give_birth(std::function<ncclResult_t()> birth) {
  if (group().depth == 0) return birth();
  if (!group().makers.empty()) return refuse_both();
  group().births.push_back(std::move(birth));
  return ncclSuccess;
}

ncclResult_t start_making(std::function<ncclResult_t()> start) {
  if (group().depth == 0) return start();
  if (!group().births.empty()) return refuse_both();
  group().makers.push_back(std::move(start));
  return ncclSuccess;
}

void if_dropped(std::function<void(ncclResult_t)> drop) {
  if (group().depth > 0) group().drops.push_back(std::move(drop));
}

ncclResult_t end_later(std::function<ncclResult_t()> ending) {
  if (group().depth == 0) return ending();
  group().endings.push_back(std::move(ending));
  return ncclSuccess;
}

ncclResult_t start_group() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  Group& here = group();
  if (here.depth == 0) return fail(nullptr, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--here.depth > 0) return ncclSuccess;
  // Most groups have neither communicators to make nor deferred calls: their vectors stay where they are (70 ns).
  ncclResult_t result = ncclSuccess;
  if (here.error == ncclSuccess && !here.births.empty()) [[unlikely]]
    result = make_all(here);
  if (here.error != ncclSuccess) [[unlikely]]
    return end_unrun(std::exchange(here, {}));
  here.drops.clear();
  const bool paceline_open = std::exchange(here.paceline_open, false);
  const bool real_open = std::exchange(here.real_open, false);
  // Every rank ends its groups in this order.
  if (paceline_open) result = worse(result, end_of_paceline(here.served));
  if (real_open) result = worse(result, end_of_real(here.forwarded));
  if (!here.deferred.empty()) [[unlikely]]
    result = worse(result, run_deferred(std::exchange(here.deferred, {})));
  if (!here.makers.empty()) [[unlikely]]
    for (const std::function<ncclResult_t()>& start : std::exchange(here.makers, {})) result = worse(result, start());
  if (!here.endings.empty()) [[unlikely]]
    for (const std::function<ncclResult_t()>& ending : std::exchange(here.endings, {}))
      result = worse(result, ending());
  return result;
}

ncclResult_t simulate_group(ncclSimInfo_t* info) {
  if (group().depth == 0) return fail(nullptr, ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  if (--group().depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group(), {});
  if (ended.error != ncclSuccess) return end_unrun(ended);
  if (ended.paceline_open) end_paceline_unrun();
  ncclResult_t result = ended.real_open ? simulate_real(ended.forwarded, info) : ncclSuccess;
  if (ended.paceline_open || !ended.births.empty() || !ended.makers.empty() || !ended.deferred.empty())
    result = worse(result, fail(nullptr, ncclInvalidUsage,
                                "ncclGroupSimulateEnd: the group has calls that Paceline serves, whose time NCCL does "
                                "not know: ask paceExplain, or set PACELINE_NCCL_FORWARD=all"));
  if (is_error(result))
    for (const std::function<void(ncclResult_t)>& drop : ended.drops) drop(result);
  for (const std::function<ncclResult_t()>& ending : ended.endings) (void)ending();
  return result;
}

}  // namespace paceline::nccl
