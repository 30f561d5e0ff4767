// Ids, communicators, operators and host streams of paceline.h.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <latch>
#include <thread>

#include "api/handle.h"
#include "base/configuration.h"
#include "base/reduction.h"
#include "base/signals_blocked.h"
#include "bootstrap/launch.h"
#include "cuda/device.h"

namespace paceline::api {

std::string& last_error_of_thread();

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
  const auto forced = read_variant(options.algorithm);
  PACE_TRY(forced.status());
  if (!forced->algorithm.empty() && algorithm_named(forced->algorithm) == nullptr)
    return Status(Code::invalid_argument, fmt::format("there is no algorithm '{}'", forced->algorithm));
  return options;
}

// How long to wait for the other ranks to come, s.
Result<double> join_timeout_of(const paceConfig_t* config) {
  const bool given = config != nullptr && config->size >= offsetof(paceConfig_t, joinTimeoutSeconds) + sizeof(double);
  const double seconds = given ? config->joinTimeoutSeconds : 0;
  if (!is_duration(seconds))
    return Status(Code::invalid_argument, fmt::format("joinTimeoutSeconds is {}: give 0 to 1e9", seconds));
  return seconds > 0 ? seconds : configuration().join_timeout;
}

// `meet(seconds)`: where the ranks come together, within this time. Not before everything else is known to be right:
// what it takes of a unique id can be had once.
template <class Meet>
Result<std::unique_ptr<Communicator>> create(const paceConfig_t* config, Meet meet) {
  PACE_TRY(configuration_status());
  auto options = options_of(config);
  if (!options.ok()) return options.status();
  const auto join_timeout = join_timeout_of(config);
  if (!join_timeout.ok()) return join_timeout.status();
  options->join_timeout = *join_timeout;
  Result<Rendezvous> where = meet(*join_timeout);
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
  std::latch all_there(count);
  std::atomic<bool> all_can{true};  // relaxed: the latch orders the stores before the loads
  std::vector<std::jthread> threads;
  threads.reserve(ended.size());
  const auto be = [&](int rank) {
    Status& status = ended[static_cast<std::size_t>(rank)];
    status = guarded([&] { return use_device(devices == nullptr ? rank : devices[rank]); });
    if (!status.ok()) all_can.store(false, std::memory_order_relaxed);
    all_there.arrive_and_wait();
    if (!all_can.load(std::memory_order_relaxed)) return;
    status = guarded([&]() -> Status {
      auto one = create(nullptr, [&](double seconds) { return rendezvous_from_unique_id(*id, rank, count, seconds); });
      if (!one.ok()) return one.status();
      made[static_cast<std::size_t>(rank)] = std::move(*one);
      return {};
    });
  };
  for (int rank = 0; rank < count; ++rank) {
    const Status started = guarded([&]() -> Status {
      const SignalsBlocked blocked;
      threads.emplace_back(be, rank);
      return {};
    });
    if (started.ok()) continue;
    all_can.store(false, std::memory_order_relaxed);
    all_there.count_down(count - rank);
    ended[static_cast<std::size_t>(rank)] = Status(
        started.code(), fmt::format("cannot start a thread for rank {} of {}: {}", rank, count, started.message()));
    break;
  }
  threads.clear();  // joins them
  const auto failed = std::ranges::find_if(ended, [](const Status& status) { return !status.ok(); });
  if (failed == ended.end()) return made;
  // Rank 0 may not have come to take the id's listener, which would wait for it.
  (void)rendezvous_from_unique_id(*id, 0, count, 0);
  return *failed;
}

paceResult_t give(paceComm_t* comm, Result<std::unique_ptr<Communicator>> made) {
  if (!made.ok()) return finish(made.status());
  *comm = *made == nullptr ? nullptr : make_handle(std::move(*made));
  return paceSuccess;
}

Status check_out(const void* out, const char* what) {
  return out == nullptr ? Status(Code::invalid_argument, fmt::format("{} is NULL", what)) : Status();
}

// What any thread may do while another one is inside a call, or destroys the communicator.
template <class Look>
Status beside_calls(paceComm* comm, Look look) {
  PACE_TRY(check(comm));
  const std::lock_guard lock(comm->end_mutex);
  PACE_TRY(check(comm));
  look(*comm->communicator);
  return {};
}

// Answer a question about a communicator with one number.
template <class Answer>
paceResult_t answer(paceComm_t comm, int* out, Answer what) {
  return guarded([&] {
    if (Status status = check_in_any_process(comm); !status.ok()) return finish(status);
    if (Status status = check_out(out, "the result pointer"); !status.ok()) return finish(status, comm);
    *out = what(*comm->communicator);
    return paceSuccess;
  });
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceGetVersion(int* version) {
  return guarded([&] {
    if (Status status = check_out(version, "version"); !status.ok()) return finish(status);
    *version = PACE_VERSION;
    return paceSuccess;
  });
}

const char* paceGetErrorString(paceResult_t result) { return name(static_cast<Code>(result)); }

const char* paceGetLastError(paceComm_t comm) try {
  if (!is_valid(comm) || comm->in_child()) return last_error_of_thread().c_str();
  thread_local std::string copy;
  const std::lock_guard lock(comm->error_mutex);
  copy = comm->last_error;
  return copy.c_str();
} catch (...) {
  return "out of memory";
}

paceResult_t paceGetUniqueId(paceUniqueId* id) {
  return guarded([&] {
    if (Status status = check_out(id, "id"); !status.ok()) return finish(status);
    auto bytes = make_unique_id();
    if (!bytes.ok()) return finish(bytes.status());
    std::memset(id->internal, 0, sizeof id->internal);
    std::memcpy(id->internal, bytes->data(), std::min(bytes->size(), sizeof id->internal));
    return paceSuccess;
  });
}

paceResult_t paceCommInitRank(paceComm_t* comm, int nranks, paceUniqueId id, int rank) {
  return paceCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

paceResult_t paceCommInitRankConfig(paceComm_t* comm, int nranks, paceUniqueId id, int rank,
                                    const paceConfig_t* config) {
  return guarded([&] {
    if (Status status = check_out(comm, "comm"); !status.ok()) return finish(status);
    if (nranks < 1 || nranks > max_ranks || rank < 0 || rank >= nranks)
      return finish(Status(Code::invalid_argument,
                           fmt::format("rank {} of {} ranks: 0 <= rank < ranks <= {}", rank, nranks, max_ranks)));
    return give(comm, create(config, [&](double seconds) {
                  return rendezvous_from_unique_id(std::as_bytes(std::span(id.internal)), rank, nranks, seconds);
                }));
  });
}

paceResult_t paceCommInitEnvironment(paceComm_t* comm, const paceConfig_t* config) {
  return guarded([&] {
    if (Status status = check_out(comm, "comm"); !status.ok()) return finish(status);
    return give(comm, create(config, rendezvous_from_environment));
  });
}

paceResult_t paceCommInitAll(paceComm_t* comms, int count, const int* devices) {
  return guarded([&] {
    if (Status status = check_out(comms, "comms"); !status.ok()) return finish(status);
    if (count < 1 || count > max_ranks)
      return finish(Status(Code::invalid_argument, fmt::format("count is {}: give 1 to {}", count, max_ranks)));
    auto made = make_all(count, devices);
    if (!made.ok()) return finish(made.status());
    for (int rank = 0; rank < count; ++rank)
      comms[rank] = make_handle(std::move((*made)[static_cast<std::size_t>(rank)]));
    return paceSuccess;
  });
}

paceResult_t paceCommSplit(paceComm_t comm, int color, int key, paceComm_t* newcomm, const paceConfig_t* config) {
  return guarded([&] {
    if (Status status = check(comm); !status.ok()) return finish(status);
    if (Status status = check_out(newcomm, "newcomm"); !status.ok()) return finish(status, comm);
    auto options = options_of(config);
    if (!options.ok()) return finish(options.status(), comm);
    after_queued(*comm);
    const Hold hold(*comm->communicator);
    if (!hold.held()) return finish(two_threads(), comm);
    auto made = comm->communicator->split(color, key, *options);
    if (!made.ok()) return finish(made.status(), comm);
    return give(newcomm, std::move(made));
  });
}

paceResult_t paceCommDestroy(paceComm_t comm) {
  return guarded([&] {
    if (Status status = check_in_any_process(comm); !status.ok()) return finish(status);
    after_queued(*comm);
    const bool inside = !comm->communicator->enter();
    if (inside && !comm->in_child())
      return finish(Status(Code::invalid_usage,
                           "another thread is inside a call on this communicator: end it first (paceCommAbort)"),
                    comm);
    if (!inside) comm->communicator->leave();
    // In a forked child the mutex may be another thread's of the parent for ever.
    std::unique_lock lock(comm->end_mutex, std::defer_lock);
    if (!comm->in_child()) lock.lock();
    comm->magic.store(0, std::memory_order_relaxed);
    // Of the parent's threads, one was in the middle of a call: what it left half done is left alone.
    if (inside) (void)comm->communicator.release();
    comm->communicator.reset();
    comm->familiar.reset();
    comm->operators.clear();
    return paceSuccess;
  });
}

paceResult_t paceCommAbort(paceComm_t comm) {
  return guarded([&] { return finish(beside_calls(comm, [](Communicator& communicator) { communicator.abort(); })); });
}

paceResult_t paceCommGetAsyncError(paceComm_t comm, paceResult_t* asyncError) {
  return guarded([&] {
    if (Status status = check(comm); !status.ok()) return finish(status);
    if (Status status = check_out(asyncError, "asyncError"); !status.ok()) return finish(status, comm);
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

paceResult_t paceCommGpuDirect(paceComm_t comm, int* direct) {
  return answer(comm, direct, [](const Communicator& c) { return c.gpus_direct() ? 1 : 0; });
}

paceResult_t paceCommGpuDirectCalls(paceComm_t comm, uint64_t* calls) {
  return guarded([&] {
    if (Status status = check(comm); !status.ok()) return finish(status);
    if (Status status = check_out(calls, "calls"); !status.ok()) return finish(status, comm);
    after_queued(*comm);
    const Hold hold(*comm->communicator);
    if (!hold.held()) return finish(two_threads(), comm);
    const auto count = comm->communicator->direct_calls();
    if (!count.ok()) return finish(count.status(), comm);
    *calls = *count;
    return paceSuccess;
  });
}

paceResult_t paceRedOpCreatePreMulSum(paceRedOp_t* op, const void* scalar, paceDataType_t type, paceComm_t comm) {
  return guarded([&] {
    if (Status status = check(comm); !status.ok()) return finish(status);
    if (Status status = check_out(op, "op"); !status.ok()) return finish(status, comm);
    if (Status status = check_out(scalar, "scalar"); !status.ok()) return finish(status, comm);
    if (type < 0 || type >= paceNumTypes)
      return finish(Status(Code::invalid_argument, fmt::format("there is no data type {}", static_cast<int>(type))),
                    comm);
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
    return paceSuccess;
  });
}

paceResult_t paceRedOpDestroy(paceRedOp_t op, paceComm_t comm) {
  return guarded([&] {
    if (Status status = check(comm); !status.ok()) return finish(status);
    const std::lock_guard lock(comm->error_mutex);
    const int number = static_cast<int>(op) - paceNumOps;
    if (number < 0 || static_cast<std::size_t>(number) >= comm->operators.size() ||
        !comm->operators[static_cast<std::size_t>(number)].live) {
      return finish(
          Status(Code::invalid_argument, fmt::format("there is no operation {} to destroy", static_cast<int>(op))));
    }
    comm->operators[static_cast<std::size_t>(number)].live = false;
    return paceSuccess;
  });
}

paceResult_t paceHostStreamCreate(paceHostStream_t* stream) {
  return guarded([&] {
    if (Status status = check_out(stream, "stream"); !status.ok()) return finish(status);
    auto made = std::make_unique<paceHostStream>();
    made->stream = std::make_unique<HostStream>();
    *stream = made.release();
    return paceSuccess;
  });
}

paceResult_t paceHostStreamSynchronize(paceHostStream_t stream) {
  return guarded([&] {
    if (Status status = check_out(stream, "stream"); !status.ok()) return finish(status);
    auto queue = stream_of(stream);
    return finish(queue.ok() ? (*queue)->synchronize() : queue.status());
  });
}

paceResult_t paceHostStreamQuery(paceHostStream_t stream) {
  return guarded([&] {
    if (Status status = check_out(stream, "stream"); !status.ok()) return finish(status);
    auto queue = stream_of(stream);
    return finish(queue.ok() ? (*queue)->query() : queue.status());
  });
}

paceResult_t paceHostStreamMark(paceHostStream_t stream, uint64_t* mark) {
  return guarded([&] {
    if (Status status = check_out(stream, "stream"); !status.ok()) return finish(status);
    if (Status status = check_out(mark, "mark"); !status.ok()) return finish(status);
    auto queue = stream_of(stream);
    if (!queue.ok()) return finish(queue.status());
    *mark = (*queue)->mark();
    return paceSuccess;
  });
}

paceResult_t paceHostStreamWait(paceHostStream_t stream, uint64_t mark, double seconds) {
  return guarded([&] {
    if (Status status = check_out(stream, "stream"); !status.ok()) return finish(status);
    auto queue = stream_of(stream);
    return finish(queue.ok() ? (*queue)->wait(mark, seconds) : queue.status());
  });
}

paceResult_t paceHostStreamResult(paceHostStream_t stream, uint64_t number) {
  return guarded([&] {
    if (Status status = check_out(stream, "stream"); !status.ok()) return finish(status);
    auto queue = stream_of(stream);
    return finish(queue.ok() ? (*queue)->result(number) : queue.status());
  });
}

paceResult_t paceHostStreamDestroy(paceHostStream_t stream) {
  return guarded([&] {
    if (Status status = check_out(stream, "stream"); !status.ok()) return finish(status);
    if (auto queue = stream_of(stream); !queue.ok()) return finish(queue.status());
    if (is_in_group(stream->stream.get()))
      return finish(Status(Code::invalid_usage, "the open group has calls for this stream: end the group first"));
    stream->magic = 0;
    if (stream->stream->in_child()) (void)stream->stream.release();
    delete stream;
    return paceSuccess;
  });
}

}  // extern "C"
