// What the CUDA engine does: calls become kernels on the caller's stream.
#include <algorithm>
#include <chrono>
#include <thread>

#include "cuda/calls/messages.h"
#include "cuda/cuda_engine.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/runtime.h"
#include "cuda/kernels/kernels.h"

namespace paceline::cuda {
namespace {

// How long the host waits for a call before its stream does; a rank that is as late as that is not waited for.
constexpr std::chrono::milliseconds time_to_catch_up(100);

}  // namespace

// A process's streams reach a GPU by few queues, and one that waits holds up what lies behind it in its queue: where
// ranks share a GPU, the very call of a later rank that it waits for. So the host waits first, but only for a while:
// the same thread may be about to make that call.
void CudaEngine::let_others_catch_up() const {
  const OutsideOfCapture outside;
  const auto until = std::chrono::steady_clock::now() + time_to_catch_up;
  while (cudaEventQuery(last_call_) == cudaErrorNotReady && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  (void)cudaGetLastError();
}

// A communicator's kernels run one after the other: what is launched on another stream waits for the blocks that were
// launched before. The other stream may be gone by now, so it is not asked.
Status CudaEngine::follow(cudaStream_t stream) {
  bool captured = false;
  PACE_TRY(ask_for_capture(stream, captured));
  counts_ = !captured;
  in_graphs_ = in_graphs_ || captured;
  if (!counts_) return {};
  unsigned long long number = 0;  // no other stream ever has the same
  PACE_CUDA("asking for the number of a stream", cudaStreamGetId(stream, &number));
  if (last_stream_ && number != *last_stream_) {
    if (shares_gpu_) let_others_catch_up();
    const auto word =
        reinterpret_cast<std::uint64_t>(windows_[static_cast<std::size_t>(rank_)]) + offsetof(WindowWords, blocks_done);
    if (!wait_for_word(stream, word, blocks_)) PACE_CUDA("ordering two streams", cudaDeviceSynchronize());
  }
  last_stream_ = number;
  return {};
}

void CudaEngine::complete(Terms& terms, std::byte* (&windows)[max_gpus]) const {
  std::copy(windows_.begin(), windows_.end(), windows);
  terms.alarm = static_cast<Alarm*>(page_->on_gpu());
  terms.ended = &words(windows[rank_]).ended;
  terms.timeout_ns = timeout_ns_;
  terms.counted = counts_;
}

Status CudaEngine::start(const void* kernel, const Launch& how, void* argument, cudaStream_t stream) {
  const bool large = how.family == Family::large;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(how.blocks));
  config.blockDim = dim3(static_cast<unsigned>(how.threads == 0 ? large_block : how.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(large ? large_shared_bytes_ : 0);
  config.stream = stream;
  // The kernel's start may overlap with the end of the one before it: it waits by itself (wait_for_kernel_before).
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(how.cluster), 1, 1};
  config.attrs = attributes;
  config.numAttrs = !on_hopper_ ? 0 : how.cluster > 1 && !shares_gpu_ ? 2 : 1;
  PACE_CUDA("launching a kernel", cudaLaunchKernelExC(&config, kernel, &argument));
  if (counts_) blocks_ += config.gridDim.x;
  if (counts_ && shares_gpu_) PACE_CUDA("marking the end of a call", cudaEventRecord(last_call_, stream));
  return {};
}

namespace {

const void* kernel_of(const Launch& how, const Task& task, DataType type) {
  const MovingKernels moving = moving_kernels();
  const Kernels kernels = kernels_of(task.folds ? type : DataType::uint8);  // what copies looks at no element
  const StripKernels& strips = task.folds ? kernels.folding : moving;
  switch (how.family) {
    case Family::brief: return strips.brief.of(task.ranks);
    case Family::wide: return strips.wide.of(task.ranks);
    case Family::streaming: return how.relays ? strips.relaying : strips.streaming.of(task.ranks);
    case Family::deep: return (how.once ? moving.deep_once : moving.deep).of(task.ranks);
    case Family::large: break;
  }
  return kernels.large;
}

}  // namespace

Status CudaEngine::run(const Request& request, void* stream) {
  const OnDevice here(device_);
  auto* const on = static_cast<cudaStream_t>(stream);
  PACE_TRY(follow(on));
  const GpuWay way = in_blocks(way_of_call(choice_.table, request, ranks_), machine_.blocks);
  PassTask passed;
  Launch how_passed;
  if (plan_passed_strips(request, rank_, ranks_, way, passed, how_passed)) {
    complete(passed, passed.windows);
    return start(kernels_of(request.type).passed_strips, how_passed, &passed, on);
  }
  DirectTask direct;
  Launch how_direct;
  const bool tries_direct =
      registration_ != nullptr && plan_direct_task(request, rank_, ranks_, way, direct, how_direct);
  if (tries_direct) {
    look(request, direct);
    if (way.engines && !counts_)
      if (const auto agreement = agree_on_engines(request, direct)) return run_engines(request, direct, *agreement, on);
    PACE_TRY(run_direct(direct, how_direct, request, on));
    if (direct.otherwise.strips != 0) return {};
  }
  Exchanges exchanges;
  std::byte* const dummy = windows_[static_cast<std::size_t>(rank_)] + offsetof(WindowWords, dummy);
  plan_collective(request, rank_, ranks_, way, dummy, exchanges);
  for (std::size_t i = 0; i < static_cast<std::size_t>(exchanges.count); ++i) {
    Task& task = exchanges.tasks[i];
    complete(task, task.windows);
    task.after_direct = tries_direct;
    const Launch& how = exchanges.launches[i];
    PACE_TRY(start(kernel_of(how, task, request.type), how, &task, on));
  }
  return {};
}

Status CudaEngine::run_schedule(const Request& request, const Forced& forced, void* stream) {
  const OnDevice here(device_);
  auto* const on = static_cast<cudaStream_t>(stream);
  PACE_TRY(follow(on));
  if (plans_ == nullptr) plans_ = std::make_unique<DevicePlanCache>(rank_, ranks_, device_, own_stream_);
  auto ready = plans_->ready(request, forced, on);
  if (!ready.ok()) return ready.status();
  const Kernels kernels = kernels_of(reduces(request.which) ? request.type : DataType::uint8);
  for (const Walk& walk : ready->plan->walks) {
    WalkTask task = task_of(*ready->plan, walk, request, rank_, ranks_, ready->memory);
    complete(task, task.windows);
    Launch how;
    how.blocks = walk.channels * walk.blocks;
    how.threads = walk_threads;
    PACE_TRY(start(kernels.walk, how, &task, on));
  }
  return {};
}

// Long pieces to others: where these see them.
void CudaEngine::offer(MessageTask& task) {
  const OutsideOfCapture outside;
  registration_->look();
  for (std::size_t peer = 0; peer < static_cast<std::size_t>(ranks_); ++peer) {
    const Piece& piece = task.gives[peer];
    if ((task.offers_to >> peer & 1) == 0 || reinterpret_cast<std::uintptr_t>(piece.data) % 16 != 0) continue;
    Sights sights{};
    registration_->sights(piece.data, piece.bytes, sights);
    task.offers[peer] = sights[peer];
  }
}

Status CudaEngine::order(void* earlier, void* later) {
  const int own = device_of_stream(earlier);
  const OnDevice here(own < 0 ? device_ : own);
  cudaEvent_t event = nullptr;
  PACE_CUDA("making an event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  cudaError_t error = cudaEventRecord(event, static_cast<cudaStream_t>(earlier));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(static_cast<cudaStream_t>(later), event, 0);
  (void)cudaEventDestroy(event);  // when it is no more waited for
  return error == cudaSuccess ? Status() : unusable("ordering two streams", error);
}

// Several messages in one direction between two ranks go one after the other, in waves.
namespace {

// Takes as many of the waiting ones as go side by side: one from each rank, and one to each.
std::vector<const Request*> next_wave(std::vector<const Request*>& waiting) {
  std::vector<const Request*> wave;
  std::vector<const Request*> later;
  for (const Request* message : waiting) {
    const auto clashes = [&](const Request* other) {
      return other->which == message->which && other->root == message->root;
    };
    (std::any_of(wave.begin(), wave.end(), clashes) ? later : wave).push_back(message);
  }
  waiting = std::move(later);
  return wave;
}

}  // namespace

Status CudaEngine::run_wave(std::span<const Request* const> wave, cudaStream_t stream) {
  MessageTask task;
  Launch how;
  plan_messages(wave, rank_, ranks_, machine_.blocks, task, how);
  const bool both = how.family == Family::large && task.way_count != 0;
  if (both) how.threads = large_block_with_strips;
  if (how.family == Family::large && registration_ != nullptr) offer(task);
  complete(task, task.windows);
  const MessageKernels kernels = message_kernels();
  const void* const kernel = how.family == Family::brief       ? kernels.brief
                             : how.family == Family::streaming ? kernels.streaming
                             : both                            ? kernels.both
                                                               : kernels.large;
  return start(kernel, how, &task, stream);
}

Status CudaEngine::run_messages(std::span<const Request> messages, void* stream) {
  const OnDevice here(device_);
  auto* const on = static_cast<cudaStream_t>(stream);
  PACE_TRY(follow(on));
  std::vector<Request> empty;  // with a place for what is passed on instead
  empty.reserve(static_cast<std::size_t>(std::ranges::count(messages, std::size_t{0}, &Request::count)));
  std::vector<const Request*> waiting;
  for (const Request& message : messages) {
    if (message.count != 0) {
      waiting.push_back(&message);
    } else if (message.root != rank_) {
      static_assert(offsetof(WindowWords, dummy) % 16 == 0 && sizeof(WindowWords::dummy) >= bytes_for_none);
      Request& its = empty.emplace_back(message);
      its.recv = windows_[static_cast<std::size_t>(rank_)] + offsetof(WindowWords, dummy);
      its.send = its.recv;
      waiting.push_back(&its);
    }
  }
  while (!waiting.empty()) PACE_TRY(run_wave(next_wave(waiting), on));
  return {};
}

}  // namespace paceline::cuda
