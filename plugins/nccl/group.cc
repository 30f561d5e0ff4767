#include "group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/all_or_none.h"
#include "base/of_thread.h"
#include "errors.h"
#include "paceline/paceline.h"
#include "real_library.h"
#include "threads.h"

namespace paceline::nccl {
namespace {

// After one has failed, for the others to fail by themselves, with sentences of their own.
constexpr std::chrono::seconds time_to_fail{1};

// The makings of a group, on a thread each, as each waits for ranks that another one makes. Where one fails the group's
// end leaves those alone that still wait.
class Together {
 public:
  explicit Together(std::vector<Birth> births) : births_(std::move(births)), results_(births_.size(), ncclInProgress) {}

  // Returns when all have ended.
  void run() {
    const auto can = [](std::size_t) { return true; };
    const auto work = [this](std::size_t i) {
      const ncclResult_t result = births_[i].make();
      const std::lock_guard lock(mutex_);
      results_[i] = result;
      result_ = worse(*result_, result);
      changed_.notify_all();
    };
    if (!all_or_none(births_.size(), can, work)) return;
    const std::lock_guard lock(mutex_);
    result_.reset();
    changed_.notify_all();
  }

  // None: the threads cannot be had.
  std::optional<ncclResult_t> wait() {
    std::unique_lock lock(mutex_);
    const auto all_ended = [&] {
      return !result_ || std::count(results_.begin(), results_.end(), ncclInProgress) == 0;
    };
    changed_.wait(lock, [&] { return all_ended() || is_error(*result_); });
    (void)changed_.wait_for(lock, time_to_fail, all_ended);
    if (!result_) return {};
    for (std::size_t i = 0; i < births_.size(); ++i)
      if (results_[i] != ncclSuccess) births_[i].drop();
    return result_;
  }

 private:
  const std::vector<Birth> births_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<ncclResult_t> results_;
  std::optional<ncclResult_t> result_{ncclSuccess};
};

std::optional<ncclResult_t> run_together(std::vector<Birth> births) {
  const auto together = std::make_shared<Together>(std::move(births));
  std::thread all = start_thread([together] { together->run(); });
  if (!all.joinable()) return {};
  all.detach();
  return together->wait();
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

ncclResult_t make_now(const Birth& birth) {
  const ncclResult_t result = birth.make();
  if (result != ncclSuccess) birth.drop();
  return result;
}

// The communicators of the group. One whose threads cannot all be had is spoiled.
ncclResult_t make_all(Group& ending) {
  std::vector<Birth> births = std::exchange(ending.births, {});
  // On this thread the calls of a making would only be queued, in the library's group that is open here.
  const std::size_t count = births.size();
  if (count == 1 && !ending.paceline_open && !ending.real_open) return make_now(births[0]);
  if (const std::optional<ncclResult_t> made = run_together(std::move(births))) return *made;
  ending.error = fail(nullptr, ncclSystemError,
                      fmt::format("ncclGroupEnd: cannot start a thread for each of the {} communicators that the group "
                                  "makes",
                                  count));
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

ncclResult_t give_birth(Birth birth) {
  if (group().depth == 0) return make_now(birth);
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
