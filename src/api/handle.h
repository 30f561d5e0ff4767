// What stands behind the C API's handles, and how its functions end.
//
// A communicator's handle stays where it is after paceCommDestroy, and a host stream's after paceHostStreamDestroy, so
// that a use after it is an error by name.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>

#include "api/familiar_calls.h"
#include "base/origin.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/host_stream.h"
#include "paceline/paceline.h"

struct paceComm {
  static constexpr std::uint64_t valid = 0x70616365636f6d6dU;

  std::atomic<std::uint64_t> magic{valid};  // 0 after destroy
  std::unique_ptr<paceline::Communicator> communicator;
  std::mutex end_mutex;  // while the communicator goes, and while a thread beside its calls' looks at it
  // Calls given to streams so far, and how many of them, the first ones, have ended: in the order in which they were
  // given, on whatever streams.
  std::atomic<std::uint64_t> queued{0};
  std::atomic<std::uint64_t> ended{0};  // written under ended_mutex
  std::mutex ended_mutex;
  std::condition_variable ended_changed;
  const paceline::Origin origin;
  std::mutex error_mutex;
  paceline::Status last_error;  // under error_mutex
  // Made by paceRedOpCreatePreMulSum, by their numbers. Under error_mutex.
  struct Operator {
    paceline::DataType type = paceline::DataType::float32;
    std::array<std::byte, 8> factor{};
  };
  std::map<int, Operator> operators;
  std::unique_ptr<paceline::api::FamiliarCalls> familiar = std::make_unique<paceline::api::FamiliarCalls>();

  // Whether this is a forked child's copy: the threads that were inside calls are not in this process.
  [[nodiscard]] bool in_child() const { return !origin.is_here(); }
};

struct paceHostStream {
  std::atomic<paceline::HostStream*> stream{nullptr};  // nullptr: destroyed
  std::atomic<int> users{0};                           // threads that wait for the stream or ask it something
};

namespace paceline::api {

// Note the status as the last error of this thread (and of the communicator) and give its code.
paceResult_t finish(const Status& status, paceComm* comm = nullptr);

const Status& last_error_of_thread();

// Inside a catch clause: the exception as a status (no memory, no thread, ...). Ends this thread's group unrun.
Status caught();

// Run the body of a function of paceline.h, or of a stream's call: no exception leaves it. Costs nothing unless one is
// thrown. Body returns a Status or a paceResult_t.
template <class Body>
auto guarded(Body&& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    if constexpr (std::is_same_v<decltype(body()), paceResult_t>)
      return finish(caught());
    else
      return caught();
  }
}

// Relaxed: whoever destroys a communicator while another thread uses it has lost anyway.
inline bool is_valid(const paceComm* comm) {
  return comm != nullptr && comm->magic.load(std::memory_order_relaxed) == paceComm::valid;
}
// Ok, or what is wrong with the handle.
Status check(paceComm* comm);
// The same for what a forked child may do too: ask who it was, and destroy its copy.
Status check_in_any_process(paceComm* comm);

// A function of paceline.h, whose body returns a Status; `comm`, where there is one, is checked first.
template <class Body>
paceResult_t entry(Body&& body) noexcept {
  return guarded([&] { return finish(body()); });
}
template <class Body>
paceResult_t entry(paceComm* comm, Body&& body) noexcept {
  return guarded([&] {
    const Status status = check(comm);
    return status.ok() ? finish(body(), comm) : finish(status);
  });
}

// What a function needs a pointer for cannot be done without it.
Status need(const void* pointer, const char* what);

// A call's hold on its communicator; not held where another thread is inside.
class Hold {
 public:
  explicit Hold(Communicator& communicator) : communicator_(communicator), held_(communicator.enter()) {}
  ~Hold() {
    if (held_) communicator_.exit();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  [[nodiscard]] bool held() const { return held_; }

 private:
  Communicator& communicator_;
  bool held_;
};
Status two_threads();

// Calls on streams end only with their communicator, on every rank, where the program wants no more to wait for them.
void abort_with_calls(paceComm& comm);

// Wait until the communicator's first `calls` calls on streams have ended. In a forked child there is nothing to wait
// for. Error: the program wanted no more to wait, and so the communicator has ended.
Status wait_for_queued(paceComm& comm, std::uint64_t calls);
inline Status after_queued(paceComm& comm) {
  // Relaxed: what this thread has queued, it sees. Acquire: what those calls wrote comes before what follows.
  const std::uint64_t queued = comm.queued.load(std::memory_order_relaxed);
  if (comm.ended.load(std::memory_order_acquire) == queued) [[likely]]
    return {};
  return wait_for_queued(comm, queued);
}

// What any thread may do while another one is inside a call, or destroys the communicator, as after an abort.
template <class Look>
Status beside_calls(paceComm* comm, Look look) {
  PACE_TRY(check(comm));
  const std::lock_guard lock(comm->end_mutex);
  PACE_TRY(check(comm));
  look(*comm->communicator);
  return {};
}

// Note why a group has failed as the last error of one of its communicators: of one that has ended its own reason, with
// ranks as it numbers them.
void note_in_group(const Status& status, paceComm* comm);

// Do something on a communicator, behind the calls that are queued for it, and as the only thread inside it. leaving:
// how long another thread's call may take to leave one that has ended.
template <class Work>
Status inside(paceComm& comm, Work work, std::chrono::milliseconds leaving = {}) {
  PACE_TRY(after_queued(comm));
  std::optional<Hold> hold;
  bool ended = false;
  const auto enter = [&](Communicator& communicator) {
    hold.emplace(communicator);
    ended = !hold->held() && !communicator.failure().ok();
  };
  PACE_TRY(beside_calls(&comm, enter));
  constexpr std::chrono::milliseconds pause{1};
  for (; ended && leaving > leaving.zero(); leaving -= pause) {
    std::this_thread::sleep_for(pause);
    PACE_TRY(beside_calls(&comm, enter));
  }
  return hold->held() ? work(*comm.communicator) : two_threads();
}

// The stream that the argument names; nullptr for none. An error for anything else, which is not read.
Result<HostStream*> stream_of(void* stream);

// Whether the call's buffers could exist: no process has more than 2^47 bytes of addresses.
inline bool fits(const Request& request, int ranks) {
  return request.count <= (std::size_t{1} << 47) / size_of(request.type) / static_cast<std::size_t>(ranks);
}

paceComm* make_handle(std::unique_ptr<Communicator> communicator);
paceHostStream* make_stream_handle(std::unique_ptr<HostStream> stream);

// Whether this process uses GPUs at all.
bool gpus_in_use();
// Where GPUs are in use: whether the call is on GPU memory; notes whose. reads, writes: whether its send and recv
// buffers matter on this rank; where none does, as in a call of no elements, paceline.h says where the call is. An
// error where one is on a GPU and the other is not, or the stream is for the other kind.
Result<bool> is_on_device(Request& request, bool reads, bool writes, void* stream);

// Whether this thread's open group has calls for the stream.
bool is_in_group(const HostStream* stream);

// Run the call now, queue it on the stream, or keep it for the end of this thread's group.
Status submit(paceComm* comm, const Arguments& arguments, const Checked& call, void* stream);
// Run a call without a stream now, if it was run before. done: left as it is if it was not, or cannot be run now.
Status run_familiar(paceComm* comm, const Arguments& arguments, bool& done);

}  // namespace paceline::api
