// The collectives, send and recv of paceline.h: arguments checked, then submitted.

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "api/group.h"
#include "schedule/problem.h"

namespace paceline::api {

namespace {

Status bad(const Arguments& call, const std::string& what) {
  return Status(Code::invalid_argument, fmt::format("{}: {}", title(call.which), what));
}

Status check_operation(const Arguments& call, paceComm* comm, Request& request) {
  if (call.op >= 0 && call.op < paceNumOps) {
    request.op = static_cast<Operation>(call.op);
    return {};
  }
  const std::lock_guard lock(comm->error_mutex);
  const auto found = comm->operators.find(call.op);
  if (found == comm->operators.end())
    return bad(call, fmt::format("there is no operation {} on this communicator", call.op));
  const paceComm::Operator& made = found->second;
  if (made.type != request.type)
    return bad(call,
               fmt::format("the operation was made for {}, the call is of {}", name(made.type), name(request.type)));
  request.op = Operation::premulsum;
  request.factor = made.factor;
  return {};
}

Result<Uses> check_buffers(const Arguments& call, const Request& request, int rank, int ranks) {
  Problem problem;
  problem.collective = call.which;
  problem.ranks = ranks;
  problem.root = request.root;
  if (!fits(request, ranks))
    return bad(call, fmt::format("{} elements are more than memory can hold (was the count negative?)", request.count));
  problem.count = 1;  // of any length
  const bool reads =
      call.which == Collective::send || (call.which != Collective::recv && input_elements(problem, rank) > 0);
  const bool writes =
      call.which == Collective::recv || (call.which != Collective::send && output_elements(problem, rank) > 0);
  if (request.count == 0 || call.which == Collective::barrier) return Uses();
  if (reads && call.send == nullptr) return bad(call, "the send buffer is NULL");
  if (writes && call.recv == nullptr) return bad(call, "the receive buffer is NULL");
  return Uses{reads, writes};
}

// Host memory of so many bytes is there. A count that is none would have a plan of gigabytes made before it is touched.
Status check_mapped(const Arguments& call, const std::byte* buffer, std::size_t bytes, const char* what) {
  constexpr std::size_t worth_asking = std::size_t{16} << 20;
  constexpr std::uintptr_t page = 4096;
  if (bytes < worth_asking) return {};
  const std::byte* const last = buffer + (bytes - 1);
  const std::byte* const last_page = last - reinterpret_cast<std::uintptr_t>(last) % page;
  unsigned char resident = 0;
  if (::mincore(const_cast<std::byte*>(last_page), page, &resident) == 0 || errno != ENOMEM) return {};
  return bad(call, fmt::format("the {} buffer has not the {} bytes that {} {} take: there is no memory at its end",
                               what, bytes, call.count, name(static_cast<DataType>(call.type))));
}

Status check_places(const Arguments& call, const Request& request, const Checked& checked, int rank, int ranks) {
  const Uses& uses = checked.uses;
  if (!checked.on_device) {
    const Problem problem = problem_of(request, ranks);
    const std::size_t element = size_of(request.type);
    const bool message = is_message(call.which);
    if (uses.send)
      PACE_TRY(
          check_mapped(call, request.send, (message ? call.count : input_elements(problem, rank)) * element, "send"));
    if (uses.recv)
      PACE_TRY(check_mapped(call, request.recv, (message ? call.count : output_elements(problem, rank)) * element,
                            "receive"));
  }
  if (uses.send && uses.recv && overlap_partly(request, rank, ranks))
    return bad(call, "the send and the receive buffer overlap: give one buffer, as paceline.h says, or two apart");
  return {};
}

// Fills `into` in its place: copies of what was just written would wait for it.
Status check_call(const Arguments& call, paceComm* comm, void* stream, Checked& into) {
  PACE_TRY(check(comm));
  const int ranks = comm->communicator->size();
  const int rank = comm->communicator->rank();
  Request& request = into.request;
  request.which = call.which;
  request.send = static_cast<const std::byte*>(call.send);
  request.recv = static_cast<std::byte*>(call.recv);
  request.count = call.count;
  if (call.type < 0 || call.type >= paceNumTypes)
    return bad(call, fmt::format("there is no data type {}", static_cast<int>(call.type)));
  request.type = static_cast<DataType>(call.type);
  if (reduces(call.which)) PACE_TRY(check_operation(call, comm, request));
  const bool message = is_message(call.which);
  if (is_rooted(call.which) || message) {
    if (call.root < 0 || call.root >= ranks)
      return bad(call,
                 fmt::format("{} {} is not among the ranks 0..{}", message ? "peer" : "root", call.root, ranks - 1));
    request.root = call.root;
  }
  const auto uses = check_buffers(call, request, rank, ranks);
  if (!uses.ok()) return uses.status();
  into.uses = *uses;
  if (gpus_in_use()) {
    const auto on_device = is_on_device(request, uses->send, uses->recv, stream);
    if (!on_device.ok()) return on_device.status();
    into.on_device = *on_device;
  }
  return check_places(call, request, into, rank, ranks);
}

paceResult_t call(const Arguments& arguments, paceComm* comm, void* stream) {
  return guarded([&] {
    if (stream == nullptr) {
      bool done = false;
      const Status status = run_familiar(comm, arguments, done);
      if (done) return finish(status, comm);
    }
    Checked ready;
    Status status = check_call(arguments, comm, stream, ready);
    if (status.ok()) [[likely]]
      status = submit(comm, arguments, ready, stream);
    if (!status.ok()) spoil_group(status);
    return finish(status, comm);
  });
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceAllReduce(const void* send, void* recv, size_t count, paceDataType_t type, paceRedOp_t op,
                           paceComm_t comm, void* stream) {
  return call({Collective::all_reduce, send, recv, count, type, op, 0}, comm, stream);
}

paceResult_t paceBroadcast(const void* send, void* recv, size_t count, paceDataType_t type, int root, paceComm_t comm,
                           void* stream) {
  return call({Collective::broadcast, send, recv, count, type, 0, root}, comm, stream);
}

paceResult_t paceReduce(const void* send, void* recv, size_t count, paceDataType_t type, paceRedOp_t op, int root,
                        paceComm_t comm, void* stream) {
  return call({Collective::reduce, send, recv, count, type, op, root}, comm, stream);
}

paceResult_t paceAllGather(const void* send, void* recv, size_t sendcount, paceDataType_t type, paceComm_t comm,
                           void* stream) {
  return call({Collective::all_gather, send, recv, sendcount, type, 0, 0}, comm, stream);
}

paceResult_t paceReduceScatter(const void* send, void* recv, size_t recvcount, paceDataType_t type, paceRedOp_t op,
                               paceComm_t comm, void* stream) {
  return call({Collective::reduce_scatter, send, recv, recvcount, type, op, 0}, comm, stream);
}

paceResult_t paceGather(const void* send, void* recv, size_t count, paceDataType_t type, int root, paceComm_t comm,
                        void* stream) {
  return call({Collective::gather, send, recv, count, type, 0, root}, comm, stream);
}

paceResult_t paceScatter(const void* send, void* recv, size_t count, paceDataType_t type, int root, paceComm_t comm,
                         void* stream) {
  return call({Collective::scatter, send, recv, count, type, 0, root}, comm, stream);
}

paceResult_t paceAllToAll(const void* send, void* recv, size_t count, paceDataType_t type, paceComm_t comm,
                          void* stream) {
  return call({Collective::all_to_all, send, recv, count, type, 0, 0}, comm, stream);
}

paceResult_t paceBarrier(paceComm_t comm, void* stream) {
  return call({Collective::barrier, nullptr, nullptr, 0, paceUint8, 0, 0}, comm, stream);
}

paceResult_t paceSend(const void* send, size_t count, paceDataType_t type, int peer, paceComm_t comm, void* stream) {
  return call({Collective::send, send, nullptr, count, type, 0, peer}, comm, stream);
}

paceResult_t paceRecv(void* recv, size_t count, paceDataType_t type, int peer, paceComm_t comm, void* stream) {
  return call({Collective::recv, nullptr, recv, count, type, 0, peer}, comm, stream);
}

paceResult_t paceGroupStart(void) {
  return guarded([] { return finish(start_group()); });
}
paceResult_t paceGroupEnd(void) {
  return guarded([] { return finish(end_group()); });
}

}  // extern "C"
