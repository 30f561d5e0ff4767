// What the CUDA engine does: calls become kernels on the caller's stream.
#include "cuda/cuda_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/call.h"
#include "base/log.h"
#include "cuda/calls/messages.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/runtime.h"
#include "cuda/kernels/kernels.h"
#include "schedule/problem.h"

namespace paceline::cuda {
namespace {

// A buffer is offered in the first, mapped in the second and known in the third; of one in many pieces 64 are offered
// in each.
constexpr int looks_for_graph = 6;
// How long the host waits for a call before its stream does; a rank that is as late as that is not waited for.
constexpr std::chrono::milliseconds time_to_catch_up(100);
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

// The graph that the stream is captured into has `holds` from now on, and so has what is instantiated from it: the last
// of them to go lets go of these. False: it does not take them.
bool give_to_graph(const Registration::Holds& holds, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  if (cudaStreamGetCaptureInfo(stream, &capture, nullptr, &graph) != cudaSuccess || graph == nullptr) return false;
  auto its = std::make_unique<Registration::Holds>(holds);
  const cudaHostFn_t drop = [](void* taken) { delete static_cast<Registration::Holds*>(taken); };
  cudaUserObject_t object = nullptr;
  if (cudaUserObjectCreate(&object, its.get(), drop, 1, cudaUserObjectNoDestructorSync) != cudaSuccess) return false;
  (void)its.release();  // the object's
  if (cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove) == cudaSuccess) return true;
  (void)cudaUserObjectRelease(object);
  return false;
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

// Where each rank sees the call's buffers; nowhere, unless all see all. A rank whose buffer nobody reads or writes has
// none to be seen.
bool CudaEngine::see(const Request& request, DirectTask& task) const {
  Problem problem;
  problem.collective = request.which;
  problem.ranks = ranks_;
  problem.root = request.root;
  problem.count = request.count * size_of(request.type);
  const Seen buffers = seen_by_others(request, task.folding);
  const std::uint64_t given = buffers.input ? input_elements(problem, rank_) : 0;
  const std::uint64_t taken = buffers.output ? output_elements(problem, rank_) : 0;
  registration_->look();
  Sights inputs{};
  Sights outputs{};
  const bool seen = fits_direct(request, ranks_, task.folding) &&
                    (given == 0 || registration_->sights(request.send, given, inputs)) &&
                    (taken == 0 || registration_->sights(request.recv, taken, outputs));
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank) {
    task.inputs[rank] = !seen ? 0 : given == 0 ? no_buffer : inputs[rank];
    task.outputs[rank] = !seen ? 0 : taken == 0 ? no_buffer : outputs[rank];
  }
  return seen;
}

// Relaxed: the words themselves end a wait, and nothing is read after them.
bool CudaEngine::is_leaving() const {
  bool leaving = true;
  page_->while_there([&] {
    leaving = std::atomic_ref(alarm_->abort).load(std::memory_order_relaxed) != 0 ||
              std::atomic_ref(alarm_->left).load(std::memory_order_relaxed) != 0;
  });
  return leaving;
}

// Where all ranks see each other's buffers, if they do.
void CudaEngine::look(const Request& request, DirectTask& task) {
  const OutsideOfCapture outside;
  bool seen = see(request, task);
  if (counts_) return;
  // What a graph is told stays as it is: here all ranks look as often as it takes to see what can be seen.
  for (int look = 0; look < looks_for_graph && registration_->in_step([this] { return is_leaving(); }); ++look)
    seen = see(request, task);
  if (!seen)
    log(LogLevel::info, rank_,
        "a graph's {} of {} bytes goes through the window in every replay: not all see its buffers",
        title(request.which), request.count * size_of(request.type));
}

// Launches the kernel that works in the users' buffers.
Status CudaEngine::run_direct(DirectTask& task, const Launch& how, const Request& request, cudaStream_t stream) {
  complete(task, task.windows);
  complete(task.otherwise, task.otherwise.windows);
  const Kernels kernels = kernels_of(task.folds ? request.type : DataType::uint8);
  return start(kernels.direct.of(ranks_), how, &task, stream);
}

// Of a call that a graph is made of, if all ranks leave it to the copy engines: where this one sees their inputs. What
// is seen piece by piece is not left to them: pieces may go while a graph is there.
std::optional<Registration::Agreement> CudaEngine::agree_on_engines(const Request& request, const DirectTask& task) {
  if (!plan_engine_copies(request, rank_, ranks_).possible) return {};
  const OutsideOfCapture outside;
  const auto address = reinterpret_cast<std::uint64_t>(request.send);
  Registration::Offer offer{task.call_what, task.call_count, {}};
  const bool even = (address | reinterpret_cast<std::uint64_t>(request.recv)) % 16 == 0;
  if (task.inputs[rank_] == no_buffer || (even && allocation_of(address).shareable))
    std::copy(std::begin(task.inputs), std::end(task.inputs), offer.inputs.begin());
  return registration_->agree(offer, [this] { return is_leaving(); });
}

// A kernel in which all ranks meet, in the name of a call that they agreed on. Another call that looks the same has
// other inputs: the number tells them apart.
Status CudaEngine::meet(const Terms& call, std::uint32_t agreement, cudaStream_t stream) {
  Exchanges exchanges;
  std::byte* const dummy = windows_[static_cast<std::size_t>(rank_)] + offsetof(WindowWords, dummy);
  plan_collective(Request(), rank_, ranks_, {}, dummy, exchanges);
  Task& task = exchanges.tasks[0];
  task.call_what = call.call_what;
  task.call_count = with_way(call.call_count, static_cast<std::uint16_t>(agreement % 0xffff + 1));
  complete(task, task.windows);
  return start(moving_kernels().brief.of(ranks_), exchanges.launches[0], &task, stream);
}

// What a rank keeps of its own, beside what comes from others: by a kernel, for a second engine would slow the first.
Status CudaEngine::keep_own(const EngineCopy& copy, const Request& request) {
  const std::byte* from = request.send + copy.input;
  std::byte* to = request.recv + copy.output;
  std::uint64_t bytes = copy.bytes;
  void* arguments[] = {&from, &to, &bytes};
  PACE_CUDA("launching a kernel",
            cudaLaunchKernel(copy_kernel(), dim3(keeping_blocks), dim3(direct_threads), arguments, 0, side_->get()));
  return {};
}

// The ranks meet when all inputs are there, copy what they get, and meet when all have it.
Status CudaEngine::run_engines(const Request& request, const DirectTask& task, const Registration::Agreement& agreement,
                               cudaStream_t stream) {
  log(LogLevel::info, rank_, "a graph's {} of {} bytes goes by the copy engines", title(request.which),
      request.count * size_of(request.type));
  const Registration::Holds& holds = agreement.holds;
  if (!give_to_graph(holds, stream)) {
    (void)cudaGetLastError();
    holds_.insert(holds_.end(), holds.begin(), holds.end());
  }
  const EngineCopies plan = plan_engine_copies(request, rank_, ranks_);
  const std::span copies(plan.copies, static_cast<std::size_t>(plan.count));
  const auto own = std::ranges::find(copies, rank_, &EngineCopy::from);
  if (own != copies.end()) {
    if (side_ == nullptr) {
      const OutsideOfCapture outside;
      auto made = SideStream::make();
      if (!made.ok()) return made.status();
      side_ = std::move(*made);
    }
    PACE_TRY(side_->fork(stream));
    PACE_TRY(keep_own(*own, request));
  }
  PACE_TRY(meet(task, agreement.number, stream));
  for (const EngineCopy& copy : copies) {
    if (copy.from == rank_) continue;
    const auto* const from = reinterpret_cast<const std::byte*>(agreement.inputs[static_cast<std::size_t>(copy.from)]);
    PACE_CUDA("copying between GPUs",
              cudaMemcpyAsync(request.recv + copy.output, from + copy.input, copy.bytes, cudaMemcpyDefault, stream));
  }
  if (own != copies.end()) PACE_TRY(side_->join(stream));
  return meet(task, agreement.number, stream);
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

void CudaEngine::let_go() {
  if (registration_ == nullptr) return;
  const OnDevice here(device_);
  const OutsideOfCapture outside;
  registration_->let_go();
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
