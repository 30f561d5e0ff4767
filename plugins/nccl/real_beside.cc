// NCCL's communicators beside Paceline's: the ranks of each make them together.
//
// NCCL waits for its ranks for ever, and a blocking making of its own cannot be ended from outside. So it has a thread
// for it, while who needs the communicators looks at Paceline's, which know of a death and of an abort: then the making
// is given up, and its thread, if NCCL ever lets it go, puts away what it has got.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "communicator.h"
#include "errors.h"
#include "real_library.h"
#include "threads.h"

namespace paceline::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto pause_between_looks = 10ms;
constexpr auto pause_between_questions = 1ms;
constexpr const char* aborted_meanwhile = "the communicator was aborted while NCCL made one beside it";

// What each rank tells the others about the real communicator that they make: whether it can, and rank 0 its id.
struct Offer {
  ncclResult_t result = ncclSuccess;
  ncclUniqueId id{};
};

// offers[i][rank] of comms[i].
ncclResult_t exchange(const std::vector<ncclComm*>& comms, std::vector<std::vector<Offer>>& offers) {
  paceResult_t result = paceGroupStart();
  for (std::size_t i = 0; i < comms.size(); ++i) {
    Offer* const all = offers[i].data();
    const paceResult_t one =
        paceAllGather(all + comms[i]->rank, all, sizeof(Offer), paceUint8, comms[i]->pace, nullptr);
    if (result == paceSuccess) result = one;
  }
  const paceResult_t ended = paceGroupEnd();
  if (result == paceSuccess) result = ended;
  return result == paceSuccess ? ncclSuccess : failed_in_paceline(comms, result);
}

// The thread that makes it looks at nothing of `comm`, which may be gone when nobody waits for it any more.
struct Beside {
  ncclComm* comm = nullptr;
  int ranks = 0;
  int rank = 0;
  std::vector<std::byte> config;  // empty: none
  DeviceContext device;
  ncclUniqueId id{};
  ncclComm_t made = nullptr;  // may be written also where its making failed
};

struct Making {
  std::vector<Beside> all;
  std::mutex mutex;  // of what follows
  std::condition_variable ended;
  std::optional<ncclResult_t> result;
  bool given_up = false;
};

bool is_given_up(Making& making) {
  const std::lock_guard lock(making.mutex);
  return making.given_up;
}

void put_away(const std::vector<Beside>& all) {
  for (const Beside& one : all)
    if (one.made != nullptr) (void)real()->ncclCommAbort(one.made);
}

ncclResult_t begin(std::vector<Beside>& all) {
  const Real* library = real();
  const bool together = all.size() > 1;
  ncclResult_t result = together ? library->ncclGroupStart() : ncclSuccess;
  for (Beside& one : all) {
    if (is_error(result)) break;
    one.device.enter();
    auto* const config = one.config.empty() ? nullptr : reinterpret_cast<ncclConfig_t*>(one.config.data());
    result = worse(result, library->ncclCommInitRankConfig(&one.made, one.ranks, one.id, one.rank, config));
  }
  return together ? worse(result, library->ncclGroupEnd()) : result;
}

ncclResult_t state_of_all(const std::vector<Beside>& all) {
  ncclResult_t result = ncclSuccess;
  for (const Beside& one : all) {
    ncclResult_t state = ncclSuccess;
    result = worse(result, real()->ncclCommGetAsyncError(one.made, &state));
    result = worse(result, state);
  }
  return result;
}

void run(Making& making) {
  ncclResult_t result = begin(making.all);
  // NCCL_COMM_BLOCKING=0 makes communicators nonblocking whatever their configuration says.
  while (result == ncclInProgress && !is_given_up(making)) {
    std::this_thread::sleep_for(pause_between_questions);
    result = state_of_all(making.all);
  }
  if (is_error(result) || is_given_up(making)) put_away(std::exchange(making.all, {}));
  const std::lock_guard lock(making.mutex);
  if (making.given_up) put_away(making.all);  // since it was asked
  making.result = result;
  making.ended.notify_all();
}

// Why nobody waits for them any more; ncclSuccess: nothing speaks against it.
ncclResult_t trouble_among(const std::vector<ncclComm*>& comms) {
  for (ncclComm* comm : comms) {
    if (const paceResult_t trouble = trouble_of(comm); trouble != paceSuccess)
      return failed_in_paceline(comms, trouble);
    if (is_unwanted(comm)) return fail(comms, nccl_code(paceAborted), aborted_meanwhile);
  }
  return ncclSuccess;
}

// Until NCCL has made all or has failed, or there is trouble.
ncclResult_t watch(Making& making, const std::vector<ncclComm*>& comms) {
  std::unique_lock lock(making.mutex);
  while (!making.ended.wait_for(lock, pause_between_looks, [&] { return making.result.has_value(); }))
    if (const ncclResult_t trouble = trouble_among(comms); trouble != ncclSuccess) {
      making.given_up = true;
      return trouble;
    }
  return from_real(comms, *making.result);
}

// All or none. An abort comes before, and is found here, or after, and ends the real one too.
ncclResult_t hand_over(const std::vector<Beside>& all, const std::vector<ncclComm*>& comms) {
  std::vector<Beside> unwanted;
  for (const Beside& one : all) {
    const std::lock_guard lock(one.comm->mutex);
    if (one.comm->unwanted)
      unwanted.push_back(one);
    else
      __atomic_store_n(&one.comm->real, one.made, __ATOMIC_RELEASE);  // pairs with real_of()
  }
  if (unwanted.empty()) return ncclSuccess;
  for (Beside one : all) {
    one.made = take_real(one.comm);
    unwanted.push_back(std::move(one));
  }
  put_away(unwanted);
  return fail(comms, nccl_code(paceAborted), aborted_meanwhile);
}

ncclResult_t make(const std::vector<ncclComm*>& comms, const std::vector<std::vector<Offer>>& offers) {
  const auto making = std::make_shared<Making>();
  const DeviceContext before = DeviceContext::current();
  for (std::size_t i = 0; i < comms.size(); ++i) {
    const bool known = comms[i]->device.device() >= 0;
    making->all.push_back({.comm = comms[i],
                           .ranks = comms[i]->ranks,
                           .rank = comms[i]->rank,
                           .config = comms[i]->config.as_blocking(),
                           .device = known ? comms[i]->device : before,
                           .id = offers[i][0].id});
  }
  std::thread maker = start_thread([making] { run(*making); });
  if (maker.joinable()) {
    maker.detach();
  } else {
    run(*making);
    before.restore();
  }
  const ncclResult_t result = watch(*making, comms);
  return is_error(result) ? result : hand_over(making->all, comms);
}

}  // namespace

ncclResult_t make_real(const std::vector<ncclComm*>& comms, const char* function, bool exists) {
  const Real* library = real();
  const bool able = library != nullptr && exists;
  std::vector<std::vector<Offer>> offers;
  for (const ncclComm* comm : comms) {
    Offer& mine = offers.emplace_back(static_cast<std::size_t>(comm->ranks))[static_cast<std::size_t>(comm->rank)];
    if (!able)
      mine.result = ncclInvalidUsage;
    else if (comm->rank == 0)
      mine.result = library->ncclGetUniqueId(&mine.id);
  }
  // Also a rank that cannot take part says so: the others would wait for it.
  if (ncclResult_t told = exchange(comms, offers); told != ncclSuccess) return told;
  if (!able) return fail_to_forward(comms, function);
  for (const std::vector<Offer>& ranks : offers)
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].result != ncclSuccess)
        return fail(comms, ranks[rank].result,
                    fmt::format("{} needs NCCL itself, and rank {} has no NCCL with it, or cannot make a unique id",
                                function, rank));
  const ncclResult_t result = make(comms, offers);
  // Of those that are being made themselves this is the end: other ranks may wait in NCCL for this one.
  if (is_error(result))
    for (ncclComm* comm : comms)
      if (state_of(comm) == State::making || is_unwanted(comm)) (void)paceCommAbort(comm->pace);
  return result;
}

}  // namespace paceline::nccl
