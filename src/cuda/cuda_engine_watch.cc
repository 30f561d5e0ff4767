// What becomes of the CUDA engine's calls once they are launched: whether they wait, what they complain of, their end.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/call.h"
#include "base/log.h"
#include "cuda/calls/messages.h"
#include "cuda/cuda_engine.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/runtime.h"

namespace paceline::cuda {
namespace {

// The host waits for kernels by looking so often.
constexpr std::chrono::microseconds time_between_looks(50);
// An attempt may spoil the capture for which it is refused, so there are few.
constexpr std::chrono::milliseconds time_between_waits(100);
constexpr std::chrono::seconds longest_capture(2);  // that a closing rank waits for

// Announcements of messages carry bytes and type.
Call call_of(std::uint32_t number, std::uint32_t what, std::uint64_t count) {
  const Call call{number, what & ((1U << way_shift) - 1), count};
  const bool none = (count >> type_shift & mark_of_none) != 0;
  const std::uint64_t type = count >> type_shift & ~std::uint64_t{mark_of_none};
  if (collective_of(call) != Collective::send || type >= data_type_count) return call;
  const auto its = static_cast<DataType>(type);
  const std::uint64_t bytes = none ? 0 : count & ((std::uint64_t{1} << type_shift) - 1);
  return make_call(Collective::send, its, Operation::sum, 0, bytes / size_of(its), number);
}

std::string_view algorithm_of(std::uint32_t what) {
  const std::uint32_t number = what >> algorithm_shift;
  return number == 0 || number > algorithms().size() ? "" : algorithms()[number - 1].name;
}

std::optional<Complaint> complaint_in(Alarm& alarm) {
  // Acquire: the kernel wrote the fields before.
  if (std::atomic_ref(alarm.raised).load(std::memory_order_acquire) == 0) return std::nullopt;
  Complaint complaint;
  complaint.mismatch = alarm.cause == static_cast<std::uint32_t>(AlarmCause::mismatch);
  complaint.left = alarm.cause == static_cast<std::uint32_t>(AlarmCause::left);
  complaint.gave_up = alarm.cause == static_cast<std::uint32_t>(AlarmCause::gave_up);
  complaint.rank = static_cast<int>(alarm.rank);
  complaint.mine = call_of(alarm.number, alarm.what, alarm.count);
  complaint.other = call_of(alarm.other_number, alarm.other_what, alarm.other_count);
  complaint.by = algorithm_of(alarm.what);
  complaint.other_by = algorithm_of(alarm.other_what);
  complaint.other_table = ((alarm.what ^ alarm.other_what) >> way_shift & ((1U << way_bits) - 1)) != 0;
  return complaint;
}

}  // namespace

// Relaxed, as in left(): kernels look at the word alone.
void CudaEngine::abort() {
  if (alarm_ != nullptr)
    page_->while_there([&] { std::atomic_ref(alarm_->abort).store(1, std::memory_order_relaxed); });
}

void CudaEngine::left(int rank) {
  if (alarm_ != nullptr)
    page_->while_there([&] { std::atomic_ref(alarm_->left).fetch_or(1U << rank, std::memory_order_relaxed); });
}

Status CudaEngine::finish() {
  const OnDevice here(device_);
  const OutsideOfCapture outside;
  // A kernel that waits for another rank ends within the timeout and its grace (patience.cuh).
  const std::chrono::nanoseconds patience(timeout_ns_ + timeout_ns_ / 8);
  if (last_stream_) PACE_TRY(wait_for_blocks(patience));
  if (in_graphs_) wait_for_gpu();
  return {};
}

// How many blocks of calls that no graph holds have ended, ever.
cudaError_t CudaEngine::count_ended(std::chrono::steady_clock::time_point until, std::uint32_t& done) {
  const std::byte* const word = windows_[static_cast<std::size_t>(rank_)] + offsetof(WindowWords, blocks_done);
  cudaError_t error = cudaMemcpyAsync(&alarm_->blocks_done, word, sizeof done, cudaMemcpyDeviceToHost, own_stream_);
  if (error != cudaSuccess) return error;
  while ((error = cudaStreamQuery(own_stream_)) == cudaErrorNotReady && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  // Relaxed: nothing else is read.
  if (error == cudaSuccess)
    page_->while_there([&] { done = std::atomic_ref(alarm_->blocks_done).load(std::memory_order_relaxed); });
  return error;
}

// Not for other communicators' blocks, which may wait for a rank that waits for this one. The host looks again and
// again: a stream that waited would hold up what lies behind it (let_others_catch_up).
Status CudaEngine::wait_for_blocks(std::chrono::nanoseconds patience) {
  auto until = std::chrono::steady_clock::now() + patience;
  std::uint32_t done = 0;
  for (;;) {
    const std::uint32_t before = done;
    const cudaError_t error = count_ended(until, done);
    (void)cudaGetLastError();
    const bool is_gone = error != cudaSuccess && error != cudaErrorNotReady;  // the context, and with it all kernels
    if (is_gone || done == blocks_) return {};
    const auto now = std::chrono::steady_clock::now();
    if (done != before) until = now + patience;
    if (now >= until)
      return Status(
          Code::timeout,
          fmt::format("none of its calls on GPU {} has ended for {:g} s (PACELINE_TIMEOUT), and they are given up: "
                      "what the program has put before them on their streams goes on for longer",
                      device_, std::chrono::duration<double>(patience).count()));
    std::this_thread::sleep_for(time_between_looks);
  }
}

// Graphs are replayed by the program, so nothing counts their blocks. CUDA refuses this while some thread, maybe this
// one, captures what goes to the GPU.
void CudaEngine::wait_for_gpu() const {
  const auto until = std::chrono::steady_clock::now() + longest_capture;
  for (;;) {
    const cudaError_t error = cudaDeviceSynchronize();
    (void)cudaGetLastError();
    if (!is_of_capture(error)) return;  // ended, or gone with their context
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(time_between_waits);
  }
  log(LogLevel::warn, rank_,
      "its calls in graphs are not waited for, since a graph is captured on GPU {}: end captures before closing a "
      "communicator",
      device_);
}

Result<std::uint64_t> CudaEngine::direct_calls() {
  PACE_TRY(finish());
  const OnDevice here(device_);
  const OutsideOfCapture outside;
  std::uint64_t count = 0;
  const std::byte* const word = windows_[static_cast<std::size_t>(rank_)] + offsetof(WindowWords, direct_calls);
  PACE_CUDA("reading a count", cudaMemcpyAsync(&count, word, sizeof count, cudaMemcpyDefault, own_stream_));
  PACE_CUDA("reading a count", cudaStreamSynchronize(own_stream_));
  return count;
}

std::optional<Complaint> CudaEngine::complaint() const {
  std::optional<Complaint> found;
  if (alarm_ != nullptr) page_->while_there([&] { found = complaint_in(*alarm_); });
  return found;
}

// Relaxed: the word says it all.
std::optional<LongKernelWait> CudaEngine::long_wait() const {
  if (alarm_ == nullptr || !page_->is_ours()) return std::nullopt;
  const std::uint64_t word = std::atomic_ref(alarm_->long_wait).load(std::memory_order_relaxed);
  if (word == 0) return std::nullopt;
  const LongWaitWord told = LongWaitWord::of(word);
  return LongKernelWait{told.rank, call_of(0, told.what, 0), static_cast<double>(told.ns) / 1e9};
}

}  // namespace paceline::cuda
