#include "api/handle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <new>
#include <system_error>

#include "api/group.h"
#include "base/fork_hold.h"
#include "base/interrupted.h"
#include "base/of_thread.h"
#include "cuda/driver/driver.h"

namespace paceline::api {
namespace {

Status& thread_error() { return of_thread<Status, struct LastError>(); }

}  // namespace

const Status& last_error_of_thread() { return thread_error(); }

paceResult_t finish(const Status& status, paceComm* comm) {
  if (status.ok()) [[likely]]
    return paceSuccess;
  thread_error() = status;
  // A forked child leaves the mutex alone: it may be another thread's of the parent for ever.
  if (is_valid(comm) && !comm->in_child()) {
    const std::lock_guard lock(comm->error_mutex);
    comm->last_error = status;
  }
  return static_cast<paceResult_t>(status.code());
}

Status caught() {
  auto status = [] {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return Status(Code::system, "out of memory");
    } catch (const std::system_error& error) {
      return Status(Code::system, error.what());
    } catch (const std::exception& error) {
      return Status(Code::internal, error.what());
    } catch (...) {
      return Status(Code::internal, "an unknown exception");
    }
  }();
  spoil_group(status);
  return status;
}

Status need(const void* pointer, const char* what) {
  return pointer == nullptr ? Status(Code::invalid_argument, fmt::format("{} is NULL", what)) : Status();
}

// Why the communicator has ended; ok if it has not.
Status failure_of(paceComm* comm) {
  Status failure;
  (void)beside_calls(comm, [&](const Communicator& communicator) { failure = communicator.failure(); });
  return failure;
}

Status two_threads() {
  return Status(Code::invalid_usage,
                "another thread is inside a call on this communicator: one thread at a time, or a communicator each "
                "(paceCommSplit)");
}

Status wait_for_queued(paceComm& comm, std::uint64_t calls) {
  if (comm.in_child()) return {};
  bool given_up = false;
  std::unique_lock lock(comm.ended_mutex);
  // Acquire: what the calls wrote comes before what follows.
  const auto reached = [&] { return comm.ended.load(std::memory_order_acquire) >= calls; };
  while (!comm.ended_changed.wait_for(lock, between_questions, reached)) {
    lock.unlock();
    if (interrupted()) {
      given_up = true;
      abort_with_calls(comm);
    }
    if (comm.in_child()) return {};  // the handler has forked
    lock.lock();
  }
  lock.unlock();
  return given_up ? failure_of(&comm) : Status();
}

void abort_with_calls(paceComm& comm) {
  (void)beside_calls(&comm, [](Communicator& communicator) { communicator.abort(); });
}

void note_in_group(const Status& status, paceComm* comm) {
  const Status own = failure_of(comm);
  (void)finish(own.ok() ? status : own, comm);
}

Status check(paceComm* comm) {
  if (is_valid(comm) && comm->in_child()) [[unlikely]]
    return Status(Code::invalid_usage,
                  "the communicator is of the process that forked this one: a forked child can only destroy its copy, "
                  "and make communicators of its own");
  return check_in_any_process(comm);
}

Status check_in_any_process(paceComm* comm) {
  if (is_valid(comm)) [[likely]]
    return {};
  return comm == nullptr ? Status(Code::invalid_argument, "the communicator is NULL")
                         : Status(Code::invalid_usage, "the communicator has been destroyed, or is none");
}

namespace {

std::mutex handles_mutex;
const HeldWhileForking<handles_mutex> held_while_forking;

// The handles of host streams live as long as the process, in blocks of which each is twice as large as the one before:
// so a few comparisons tell, without a lock, whether a pointer is one of them. What it points at may be anything, a
// stream of the CUDA driver's too, and is not looked at.
constexpr std::size_t first_block = 64;
constexpr std::size_t size_of_block(std::size_t block) { return first_block << block; }
std::array<std::atomic<paceHostStream*>, 40> stream_blocks{};

bool is_host_stream(const void* stream) {
  const auto address = reinterpret_cast<std::uintptr_t>(stream);
  for (std::size_t block = 0; block < stream_blocks.size(); ++block) {
    // Relaxed: who asks about a handle has it from the thread that stored its block; of any other pointer it is not.
    const auto begin = reinterpret_cast<std::uintptr_t>(stream_blocks[block].load(std::memory_order_relaxed));
    if (begin == 0) return false;
    const std::uintptr_t offset = address - begin;
    if (offset < size_of_block(block) * sizeof(paceHostStream)) return offset % sizeof(paceHostStream) == 0;
  }
  return false;
}

bool machine_has_gpus() {
  static const bool has = ::access("/dev/nvidiactl", F_OK) == 0;
  return has;
}

}  // namespace

Result<HostStream*> stream_of(void* stream) {
  if (stream == nullptr) return nullptr;
  if (!is_host_stream(stream))
    return Status(Code::invalid_argument,
                  "`stream` is not a paceHostStream_t: host buffers need NULL or a host stream, CUDA streams are for "
                  "GPU buffers");
  // Seq_cst: after this thread was counted among the stream's users, if it is one of them.
  HostStream* const queue = static_cast<paceHostStream*>(stream)->stream.load(std::memory_order_seq_cst);
  if (queue == nullptr) return Status(Code::invalid_usage, "the host stream has been destroyed");
  return queue;
}

bool gpus_in_use() { return machine_has_gpus() && cuda::driver_loaded(); }

Result<bool> is_on_device(Request& request, bool reads, bool writes, void* stream) {
  const void* const send = reads ? request.send : nullptr;
  const void* const recv = writes ? request.recv : nullptr;
  request.send_gpu = cuda::device_of(send);
  request.recv_gpu = cuda::device_of(recv);
  const bool send_there = request.send_gpu >= 0;
  const bool recv_there = request.recv_gpu >= 0;
  if (send != nullptr && recv != nullptr && send_there != recv_there)
    return Status(Code::invalid_argument,
                  fmt::format("{}: the send buffer is in {} memory and the receive buffer in {} memory: copy one",
                              title(request.which), send_there ? "GPU" : "host", recv_there ? "GPU" : "host"));
  // Of no elements, or a barrier: a buffer that it does not use may still say where it belongs.
  if (send == nullptr && recv == nullptr)
    return stream != nullptr ? !is_host_stream(stream)
                             : cuda::device_of(request.send) >= 0 || cuda::device_of(request.recv) >= 0;
  const bool there = send_there || recv_there;
  if (there && is_host_stream(stream))
    return Status(
        Code::invalid_argument,
        fmt::format("{}: `stream` is a paceHostStream_t, which is for host buffers: GPU buffers need NULL or a "
                    "cudaStream_t",
                    title(request.which)));
  return there;
}

paceComm* make_handle(std::unique_ptr<Communicator> communicator) {
  // Handles live as long as the process: what is left of each is a few hundred bytes.
  static auto* handles = new std::deque<paceComm>();
  const std::lock_guard lock(handles_mutex);
  paceComm& handle = handles->emplace_back();
  handle.communicator = std::move(communicator);
  return &handle;
}

paceHostStream* make_stream_handle(std::unique_ptr<HostStream> stream) {
  static std::size_t block = 0;
  static std::size_t taken = 0;  // of that block
  const std::lock_guard lock(handles_mutex);
  if (taken == size_of_block(block)) {
    ++block;
    taken = 0;
  }
  if (taken == 0) stream_blocks[block].store(new paceHostStream[size_of_block(block)], std::memory_order_relaxed);
  paceHostStream& handle = stream_blocks[block].load(std::memory_order_relaxed)[taken++];
  handle.stream.store(stream.release(), std::memory_order_relaxed);
  return &handle;
}

}  // namespace paceline::api
