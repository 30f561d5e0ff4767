// Calls that work in the users' buffers, where all ranks see each other's: by a kernel, or in graphs by the copy
// engines.
#include <algorithm>
#include <atomic>
#include <memory>

#include "base/log.h"
#include "cuda/cuda_engine.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/runtime.h"
#include "cuda/kernels/kernels.h"
#include "schedule/problem.h"

namespace paceline::cuda {
namespace {

// A buffer is offered in the first, mapped in the second and known in the third; of one in many pieces 64 are offered
// in each.
constexpr int looks_for_graph = 6;

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

}  // namespace

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

void CudaEngine::let_go() {
  if (registration_ == nullptr) return;
  const OnDevice here(device_);
  const OutsideOfCapture outside;
  registration_->let_go();
}

}  // namespace paceline::cuda
