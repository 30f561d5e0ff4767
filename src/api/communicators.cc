// Ids and communicators of paceline.h: made, asked, ended.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>

#include "api/handle.h"
#include "base/all_or_none.h"
#include "base/configuration.h"
#include "base/interrupted.h"
#include "base/of_thread.h"
#include "base/reduction.h"
#include "bootstrap/launch.h"
#include "cuda/driver/device.h"
#include "tuning/variant.h"

namespace paceline::api {

namespace {

// Neither for ever nor so long that a clock cannot count it.
bool is_duration(double seconds) { return seconds >= 0 && seconds <= 1e9; }

Result<CommunicatorOptions> options_of(const paceConfig_t* config) {
  CommunicatorOptions options;
  if (config == nullptr) return options;
  if (config->size < offsetof(paceConfig_t, chunkBytes) + sizeof config->chunkBytes)
    return Status(Code::invalid_argument, "the paceConfig_t was not started from PACE_CONFIG_INITIALIZER");
  if (!is_duration(config->timeoutSeconds))
    return Status(Code::invalid_argument, fmt::format("timeoutSeconds is {}: give 0 to 1e9", config->timeoutSeconds));
  options.timeout = config->timeoutSeconds;
  if (config->algorithm != nullptr) options.algorithm = config->algorithm;
  options.chunk = config->chunkBytes;
  PACE_TRY(known_variant(options.algorithm).status());
  return options;
}

// With how long to wait for the other ranks to come; 0: it is not said.
Result<CommunicatorOptions> joining_options_of(const paceConfig_t* config) {
  auto options = options_of(config);
  if (!options.ok()) return options;
  const bool given = config != nullptr && config->size >= offsetof(paceConfig_t, joinTimeoutSeconds) + sizeof(double);
  const double seconds = given ? config->joinTimeoutSeconds : 0;
  if (!is_duration(seconds))
    return Status(Code::invalid_argument, fmt::format("joinTimeoutSeconds is {}: give 0 to 1e9", seconds));
  options->join_timeout = seconds;
  return options;
}

// `meet(seconds)`: where the ranks come together, within this time. Not before everything else is known to be right:
// what it takes of a unique id can be had once.
template <class Meet>
Result<std::unique_ptr<Communicator>> create(const paceConfig_t* config, Meet meet) {
  PACE_TRY(configuration_status());
  auto options = joining_options_of(config);
  if (!options.ok()) return options.status();
  if (options->join_timeout == 0) options->join_timeout = configuration().join_timeout;
  Result<Rendezvous> where = meet(options->join_timeout);
  if (!where.ok()) return where.status();
  std::shared_ptr<Session> session;
  if (where->size == 1) {
    session = alone();
  } else {
    auto joined = join(std::move(*where));
    if (!joined.ok()) return joined.status();
    session = *joined;
  }
  return Communicator::create(std::move(session), *options);
}

// As paceCommInitAll has it.
Result<std::vector<std::unique_ptr<Communicator>>> make_all(int count, const int* devices) {
  const auto id = make_unique_id();
  if (!id.ok()) return id.status();
  std::vector<Status> ended(static_cast<std::size_t>(count));
  std::vector<std::unique_ptr<Communicator>> made(ended.size());
  // Joining waits for the others, so every rank needs a thread of its own, and none joins unless all can.
  const auto prepare = [&](std::size_t rank) {
    ended[rank] = guarded([&] { return use_device(devices == nullptr ? static_cast<int>(rank) : devices[rank]); });
    return ended[rank].ok();
  };
  const auto meet = [&](std::size_t rank) {
    ended[rank] = guarded([&]() -> Status {
      auto one = create(nullptr, [&](double seconds) {
        return rendezvous_from_unique_id(*id, static_cast<int>(rank), count, seconds);
      });
      if (!one.ok()) return one.status();
      made[rank] = std::move(*one);
      return {};
    });
  };
  if (const auto missing = all_or_none(ended.size(), prepare, meet)) {
    const Status why = guarded([&]() -> Status { std::rethrow_exception(missing->why); });
    ended[missing->thread] = Status(
        why.code(), fmt::format("cannot start a thread for rank {} of {}: {}", missing->thread, count, why.message()));
  }
  const auto failed = std::ranges::find_if(ended, [](const Status& status) { return !status.ok(); });
  if (failed == ended.end()) return made;
  // Rank 0 may not have come to take the id's listener, which would wait for it.
  (void)rendezvous_from_unique_id(*id, 0, 1, 0);
  return *failed;
}

Status give(paceComm_t* comm, Result<std::unique_ptr<Communicator>> made) {
  PACE_TRY(made.status());
  *comm = *made == nullptr ? nullptr : make_handle(std::move(*made));
  return {};
}

// Of the communicator, or this thread.
Status last_error_of(paceComm_t comm) {
  if (!is_valid(comm) || comm->in_child()) return last_error_of_thread();
  const std::lock_guard lock(comm->error_mutex);
  return comm->last_error;
}

// Answer a question about a communicator with one number.
template <class Answer>
paceResult_t answer(paceComm_t comm, int* out, Answer what) {
  return guarded([&] {
    if (Status status = check_in_any_process(comm); !status.ok()) return finish(status);
    if (Status status = need(out, "the result pointer"); !status.ok()) return finish(status, comm);
    *out = what(*comm->communicator);
    return paceSuccess;
  });
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceSetInterrupted(int (*interrupted)(void)) {
  ask_when_waiting(interrupted);
  return paceSuccess;
}

paceResult_t paceGetVersion(int* version) {
  return entry([&]() -> Status {
    PACE_TRY(need(version, "version"));
    *version = PACE_VERSION;
    return {};
  });
}

const char* paceGetErrorString(paceResult_t result) { return name(static_cast<Code>(result)); }

const char* paceGetLastError(paceComm_t comm) try {
  auto& last = of_thread<Status, struct LastAskedFor>();
  last = last_error_of(comm);
  return last.ok() ? "no error" : last.message().c_str();
} catch (...) {
  return "out of memory";
}

paceResult_t paceGetLastErrorRank(paceComm_t comm, int* rank) {
  return entry([&]() -> Status {
    PACE_TRY(need(rank, "rank"));
    const Status last = last_error_of(comm);
    *rank = last.ok() ? -1 : last.detail().rank;
    return {};
  });
}

paceResult_t paceGetUniqueId(paceUniqueId* id) {
  return entry([&]() -> Status {
    PACE_TRY(need(id, "id"));
    auto bytes = make_unique_id();
    PACE_TRY(bytes.status());
    std::memset(id->internal, 0, sizeof id->internal);
    std::memcpy(id->internal, bytes->data(), std::min(bytes->size(), sizeof id->internal));
    return {};
  });
}

paceResult_t paceCommInitRank(paceComm_t* comm, int nranks, paceUniqueId id, int rank) {
  return paceCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

paceResult_t paceCommInitRankConfig(paceComm_t* comm, int nranks, paceUniqueId id, int rank,
                                    const paceConfig_t* config) {
  return entry([&]() -> Status {
    PACE_TRY(need(comm, "comm"));
    if (nranks < 1 || nranks > max_ranks || rank < 0 || rank >= nranks)
      return Status(Code::invalid_argument,
                    fmt::format("rank {} of {} ranks: 0 <= rank < ranks <= {}", rank, nranks, max_ranks));
    return give(comm, create(config, [&](double seconds) {
                  return rendezvous_from_unique_id(std::as_bytes(std::span(id.internal)), rank, nranks, seconds);
                }));
  });
}

paceResult_t paceCommInitEnvironment(paceComm_t* comm, const paceConfig_t* config) {
  return entry([&]() -> Status {
    PACE_TRY(need(comm, "comm"));
    return give(comm, create(config, rendezvous_from_environment));
  });
}

paceResult_t paceCommInitAll(paceComm_t* comms, int count, const int* devices) {
  return entry([&]() -> Status {
    PACE_TRY(need(comms, "comms"));
    if (count < 1 || count > max_ranks)
      return Status(Code::invalid_argument, fmt::format("count is {}: give 1 to {}", count, max_ranks));
    auto made = make_all(count, devices);
    PACE_TRY(made.status());
    for (int rank = 0; rank < count; ++rank)
      comms[rank] = make_handle(std::move((*made)[static_cast<std::size_t>(rank)]));
    return {};
  });
}

paceResult_t paceCommSplit(paceComm_t comm, int color, int key, paceComm_t* newcomm, const paceConfig_t* config) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(newcomm, "newcomm"));
    auto options = options_of(config);
    PACE_TRY(options.status());
    return inside(*comm, [&](Communicator& c) { return give(newcomm, c.split(color, key, *options)); });
  });
}

paceResult_t paceCommShrink(paceComm_t comm, const int* excluded, int count, paceComm_t* newcomm,
                            const paceConfig_t* config) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(newcomm, "newcomm"));
    if (count < 0) return Status(Code::invalid_argument, fmt::format("count is {}: give 0 or more", count));
    if (count > 0) PACE_TRY(need(excluded, "excluded"));
    auto options = joining_options_of(config);
    PACE_TRY(options.status());
    const std::span out(excluded, static_cast<std::size_t>(count));
    constexpr std::chrono::seconds leaving{2};  // an abort promises one
    return inside(
        *comm, [&](Communicator& c) { return give(newcomm, c.shrink(out, *options)); }, leaving);
  });
}

paceResult_t paceCommDestroy(paceComm_t comm) {
  return guarded([&] {
    if (Status status = check_in_any_process(comm); !status.ok()) return finish(status);
    const Status given_up = after_queued(*comm);
    const bool inside = !comm->communicator->enter();
    if (inside && !comm->in_child())
      return finish(Status(Code::invalid_usage,
                           "another thread is inside a call on this communicator: end it first (paceCommAbort)"),
                    comm);
    // Without the memory for it this is the end all the same.
    const Status untaken = inside ? Status() : guarded([&] { return comm->communicator->leave(); });
    // In a forked child the mutex may be another thread's of the parent for ever.
    std::unique_lock lock(comm->end_mutex, std::defer_lock);
    if (!comm->in_child()) lock.lock();
    comm->magic.store(0, std::memory_order_relaxed);
    // Of the parent's threads, one was in the middle of a call: what it left half done is left alone.
    if (inside) (void)comm->communicator.release();
    comm->communicator.reset();
    comm->familiar.reset();
    comm->operators.clear();
    return finish(given_up.ok() ? untaken : given_up);
  });
}

paceResult_t paceCommAbort(paceComm_t comm) {
  return guarded([&] { return finish(beside_calls(comm, [](Communicator& communicator) { communicator.abort(); })); });
}

paceResult_t paceCommGetAsyncError(paceComm_t comm, paceResult_t* asyncError) {
  return guarded([&] {
    if (Status status = check(comm); !status.ok()) return finish(status);
    if (Status status = need(asyncError, "asyncError"); !status.ok()) return finish(status, comm);
    Status failure;
    const Status looked = beside_calls(comm, [&](Communicator& communicator) { failure = communicator.failure(); });
    if (looked.ok()) *asyncError = finish(failure, comm);
    return finish(looked);
  });
}

paceResult_t paceCommCount(paceComm_t comm, int* count) {
  return answer(comm, count, [](const Communicator& c) { return c.size(); });
}
paceResult_t paceCommUserRank(paceComm_t comm, int* rank) {
  return answer(comm, rank, [](const Communicator& c) { return c.rank(); });
}
paceResult_t paceCommNodeCount(paceComm_t comm, int* count) {
  return answer(comm, count, [](const Communicator& c) { return c.node_size(); });
}
paceResult_t paceCommNodeRank(paceComm_t comm, int* rank) {
  return answer(comm, rank, [](const Communicator& c) { return c.node_rank(); });
}

paceResult_t paceCommLinksMeasured(paceComm_t comm, int* measured) {
  return answer(comm, measured, [](const Communicator& c) { return c.links_measured() ? 1 : 0; });
}
paceResult_t paceCommGpuDirect(paceComm_t comm, int* direct) {
  return answer(comm, direct, [](const Communicator& c) { return c.gpus_direct() ? 1 : 0; });
}

paceResult_t paceCommGpuDirectCalls(paceComm_t comm, uint64_t* calls) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(calls, "calls"));
    return inside(*comm, [&](Communicator& c) -> Status {
      const auto count = c.direct_calls();
      PACE_TRY(count.status());
      *calls = *count;
      return {};
    });
  });
}

}  // extern "C"
