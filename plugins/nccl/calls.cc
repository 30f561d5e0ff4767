// NCCL's collectives, messages and groups: Paceline's, or the real library's.

#include <fmt/format.h>

#include <optional>

#include "communicator.h"
#include "errors.h"
#include "forward.h"
#include "group.h"
#include "real_library.h"

namespace paceline::nccl {
namespace {

paceDataType_t pace(ncclDataType_t type) { return static_cast<paceDataType_t>(type); }
// A call of no elements may have no buffer that tells where it belongs, and NULL would say the host: then CUDA's
// default stream goes by its other name, cudaStreamLegacy.
cudaStream_t pace(cudaStream_t stream, size_t count) {
  const bool tells_nothing = stream == nullptr && count == 0 && choice().on_gpus;
  return tells_nothing ? reinterpret_cast<cudaStream_t>(1) : stream;
}

// An operator as Paceline knows it.
struct Translated {
  enum { pacelines, nccls, nobodys } whose = pacelines;  // NCCL's: it reads the scalar in device memory when it runs
  paceRedOp_t op = paceSum;
};

Translated translated(ncclComm* comm, ncclRedOp_t op) {
  if (op < ncclNumOps) [[likely]]
    return {Translated::pacelines, static_cast<paceRedOp_t>(op)};
  const std::lock_guard lock(comm->mutex);
  const auto found = comm->operators.find(op);
  if (found == comm->operators.end()) return {Translated::nobodys};
  const Operator& made = found->second;
  return {made.residence == ncclScalarHostImmediate ? Translated::pacelines : Translated::nccls, made.pace};
}

// call(communicator of Paceline's), inside this thread's group.
template <class Call>
ncclResult_t serve(ncclComm* comm, Call call) {
  if (group().depth > 0) [[unlikely]]
    if (ncclResult_t joined = join_paceline_group(comm); joined != ncclSuccess) return spoil_if_failed(joined);
  const paceResult_t result = call(comm->pace);
  if (result == paceSuccess) [[likely]]
    return ncclSuccess;
  return spoil_if_failed(failed_in_paceline(comm, result));
}

// call(communicator of Paceline's, operator), likewise; nothing: the operator is NCCL's.
template <class Call>
std::optional<ncclResult_t> serve_reduction(ncclComm* comm, const char* function, ncclRedOp_t op, Call call) {
  const Translated own = translated(comm, op);
  if (own.whose == Translated::nccls) return {};
  if (own.whose == Translated::nobodys)
    return spoil_if_failed(fail(comm, ncclInvalidArgument,
                                fmt::format("{}: there is no operation {}", function, static_cast<unsigned>(op))));
  return serve(comm, [&](paceComm_t pacers) { return call(pacers, own.op); });
}

// Whether Paceline serves the call: `buffer` is one that every rank has in it. NCCL takes pinned host memory too, in
// the order of a CUDA stream. Paceline's calls on host memory know none, so they would read it before it is written.
// Where a call of no elements points to says nothing: often to the end of a buffer.
bool served(const ncclComm* comm, State state, Service service, const void* buffer, size_t count) {
  if (state != State::ready || !serves(comm, service)) return false;
  return !choice().on_gpus || count == 0 || buffer == nullptr || is_gpu_memory(buffer);
}

}  // namespace
}  // namespace paceline::nccl

using namespace paceline::nccl;

extern "C" {

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::all_reduce, recv, count))
    if (const auto done = serve_reduction(comm, "ncclAllReduce", op, [&](paceComm_t pacers, paceRedOp_t own) {
          return paceAllReduce(send, recv, count, pace(type), own, pacers, pace(stream, count));
        }))
      return *done;
  return forward(comm, state, "ncclAllReduce", &Real::ncclAllReduce, [=](auto function, ncclComm_t real) {
    return function(send, recv, count, type, real_operator(comm, op), real, stream);
  });
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::broadcast, recv, count))
    return serve(comm, [&](paceComm_t pacers) {
      return paceBroadcast(send, recv, count, pace(type), root, pacers, pace(stream, count));
    });
  return forward(comm, state, "ncclBroadcast", &Real::ncclBroadcast,
                 [=](auto function, ncclComm_t real) { return function(send, recv, count, type, root, real, stream); });
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::broadcast, buffer, count))
    return serve(comm, [&](paceComm_t pacers) {
      return paceBroadcast(buffer, buffer, count, pace(type), root, pacers, pace(stream, count));
    });
  return forward(comm, state, "ncclBcast", &Real::ncclBcast,
                 [=](auto function, ncclComm_t real) { return function(buffer, count, type, root, real, stream); });
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::reduce, send, count))
    if (const auto done = serve_reduction(comm, "ncclReduce", op, [&](paceComm_t pacers, paceRedOp_t own) {
          return paceReduce(send, recv, count, pace(type), own, root, pacers, pace(stream, count));
        }))
      return *done;
  return forward(comm, state, "ncclReduce", &Real::ncclReduce, [=](auto function, ncclComm_t real) {
    return function(send, recv, count, type, real_operator(comm, op), root, real, stream);
  });
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::all_gather, recv, count))
    return serve(comm, [&](paceComm_t pacers) {
      return paceAllGather(send, recv, count, pace(type), pacers, pace(stream, count));
    });
  return forward(comm, state, "ncclAllGather", &Real::ncclAllGather,
                 [=](auto function, ncclComm_t real) { return function(send, recv, count, type, real, stream); });
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::reduce_scatter, recv, count))
    if (const auto done = serve_reduction(comm, "ncclReduceScatter", op, [&](paceComm_t pacers, paceRedOp_t own) {
          return paceReduceScatter(send, recv, count, pace(type), own, pacers, pace(stream, count));
        }))
      return *done;
  return forward(comm, state, "ncclReduceScatter", &Real::ncclReduceScatter, [=](auto function, ncclComm_t real) {
    return function(send, recv, count, type, real_operator(comm, op), real, stream);
  });
}

ncclResult_t ncclGather(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::gather, send, count))
    return serve(comm, [&](paceComm_t pacers) {
      return paceGather(send, recv, count, pace(type), root, pacers, pace(stream, count));
    });
  return forward(comm, state, "ncclGather", &Real::ncclGather,
                 [=](auto function, ncclComm_t real) { return function(send, recv, count, type, root, real, stream); });
}

ncclResult_t ncclScatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::scatter, recv, count))
    return serve(comm, [&](paceComm_t pacers) {
      return paceScatter(send, recv, count, pace(type), root, pacers, pace(stream, count));
    });
  return forward(comm, state, "ncclScatter", &Real::ncclScatter,
                 [=](auto function, ncclComm_t real) { return function(send, recv, count, type, root, real, stream); });
}

ncclResult_t ncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::all_to_all, recv, count))
    return serve(comm, [&](paceComm_t pacers) {
      return paceAllToAll(send, recv, count, pace(type), pacers, pace(stream, count));
    });
  return forward(comm, state, "ncclAlltoAll", &Real::ncclAlltoAll,
                 [=](auto function, ncclComm_t real) { return function(send, recv, count, type, real, stream); });
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::send_recv, send, count))
    return serve(
        comm, [&](paceComm_t pacers) { return paceSend(send, count, pace(type), peer, pacers, pace(stream, count)); });
  return forward(comm, state, "ncclSend", &Real::ncclSend,
                 [=](auto function, ncclComm_t real) { return function(send, count, type, peer, real, stream); });
}

ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const State state = state_of(comm);
  if (served(comm, state, Service::send_recv, recv, count))
    return serve(
        comm, [&](paceComm_t pacers) { return paceRecv(recv, count, pace(type), peer, pacers, pace(stream, count)); });
  return forward(comm, state, "ncclRecv", &Real::ncclRecv,
                 [=](auto function, ncclComm_t real) { return function(recv, count, type, peer, real, stream); });
}

ncclResult_t ncclGroupStart() { return start_group(); }
ncclResult_t ncclGroupEnd() { return end_group(); }

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) { return simulate_group(info); }

}  // extern "C"

PACE_NCCL_CALLS(PACE_NCCL_TWIN)
PACE_NCCL_GROUPS(PACE_NCCL_TWIN)
