#include "cuda/device_plan_cache.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cuda/driver/runtime.h"

namespace paceline::cuda {
namespace {

// Of plans on the GPU: beyond, those not used for long go.
constexpr std::uint64_t most_plan_bytes = 32 << 20;
constexpr std::uint64_t steps_at = 256;  // behind the progress words
static_assert(max_blocks * sizeof(std::uint32_t) <= steps_at && steps_at % alignof(DeviceStep) == 0);

}  // namespace

DevicePlanCache::DevicePlanCache(int rank, int ranks, int device, cudaStream_t uploads)
    : rank_(rank), ranks_(ranks), device_(device), uploads_(uploads) {}

DevicePlanCache::~DevicePlanCache() {
  if (pool_ == nullptr) return;
  for (auto& [key, kept] : plans_) drop(kept.memory, uploads_);
  for (const DeviceMemory& memory : outgrown_) drop(memory, uploads_);
  drop(scratch_, uploads_);
  (void)cudaStreamSynchronize(uploads_);
  (void)cudaMemPoolDestroy(pool_);
}

// Ordered on the stream of uploads, which no kernel is on; cudaMalloc may wait for all of the GPU.
Result<DeviceMemory> DevicePlanCache::allocate(std::uint64_t bytes) {
  if (pool_ == nullptr) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, device_};
    PACE_CUDA("making a pool of GPU memory", cudaMemPoolCreate(&pool_, &properties));
    int waits = 0;  // nor may it wait for what kernels still use
    PACE_CUDA("setting up a pool of GPU memory",
              cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &waits));
  }
  void* memory = nullptr;
  PACE_CUDA("allocating GPU memory for a schedule", cudaMallocFromPoolAsync(&memory, bytes, pool_, uploads_));
  return DeviceMemory{static_cast<std::byte*>(memory), bytes, false};
}

// When all that is on the stream so far has ended.
void DevicePlanCache::drop(const DeviceMemory& memory, cudaStream_t stream) {
  if (memory.begin != nullptr) (void)cudaFreeAsync(memory.begin, stream);
}

Status DevicePlanCache::upload(Kept& kept) {
  const std::uint64_t step_bytes = kept.plan.steps.size() * sizeof(DeviceStep);
  auto memory = allocate(steps_at + step_bytes);
  if (!memory.ok()) return memory.status();
  const auto write = [&]() -> Status {
    PACE_CUDA("clearing a schedule's progress", cudaMemsetAsync(memory->begin, 0, steps_at, uploads_));
    PACE_CUDA("uploading a schedule", cudaMemcpyAsync(memory->begin + steps_at, kept.plan.steps.data(), step_bytes,
                                                      cudaMemcpyHostToDevice, uploads_));
    PACE_CUDA("uploading a schedule", cudaStreamSynchronize(uploads_));
    return {};
  };
  Status written = write();
  if (written.ok())
    kept.memory = *memory;
  else
    drop(*memory, uploads_);
  return written;
}

Status DevicePlanCache::reserve_scratch(std::uint64_t bytes, cudaStream_t stream, bool captured) {
  if (bytes > scratch_.bytes) {
    auto larger = allocate(bytes);
    if (!larger.ok()) return larger.status();
    const auto clear = [&]() -> Status {
      PACE_CUDA("clearing scratch memory", cudaMemsetAsync(larger->begin, 0, bytes, uploads_));
      PACE_CUDA("clearing scratch memory", cudaStreamSynchronize(uploads_));
      return {};
    };
    if (Status cleared = clear(); !cleared.ok()) {
      drop(*larger, uploads_);
      return cleared;
    }
    if (scratch_.captured || captured)
      outgrown_.push_back(scratch_);
    else
      drop(scratch_, stream);
    scratch_ = *larger;
  }
  scratch_.captured = scratch_.captured || (captured && bytes != 0);
  return {};
}

// A program whose counts never repeat must not fill the memory.
void DevicePlanCache::trim(const Kept& current, cudaStream_t stream) {
  while (plan_bytes_ > most_plan_bytes) {
    auto oldest = plans_.end();
    for (auto it = plans_.begin(); it != plans_.end(); ++it)
      if (&it->second != &current && !it->second.memory.captured &&
          (oldest == plans_.end() || it->second.used < oldest->second.used))
        oldest = it;
    if (oldest == plans_.end()) return;
    plan_bytes_ -= oldest->second.memory.bytes;
    drop(oldest->second.memory, stream);
    plans_.erase(oldest);
  }
}

Result<ReadyPlan> DevicePlanCache::ready(const Request& request, const Forced& forced, cudaStream_t stream) {
  bool captured = false;
  PACE_TRY(ask_for_capture(stream, captured));
  const Key key{forced.algorithm,     request.which,        request.type,
                request.op,           request.root,         request.count,
                forced.variant.chunk, forced.variant.radix, is_in_place(request, rank_)};
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    const OutsideOfCapture outside;
    auto plan = device_plan(request, rank_, ranks_, forced);
    if (!plan.ok()) return plan.status();
    Kept kept{std::move(*plan), {}, 0};
    PACE_TRY(upload(kept));
    plan_bytes_ += kept.memory.bytes;
    log(LogLevel::info, rank_, "{} of {} {} on the GPU: {}, {} steps, chunks of {} bytes", title(request.which),
        request.count, name(request.type), forced.algorithm->name, kept.plan.steps.size(), kept.plan.chunk_bytes);
    found = plans_.emplace(key, std::move(kept)).first;
  }
  Kept& kept = found->second;
  kept.used = ++uses_;
  kept.memory.captured = kept.memory.captured || captured;
  const OutsideOfCapture outside;
  PACE_TRY(reserve_scratch(kept.plan.scratch_bytes, stream, captured));
  if (!captured) trim(kept, stream);
  return ReadyPlan{&kept.plan,
                   {reinterpret_cast<const DeviceStep*>(kept.memory.begin + steps_at),
                    reinterpret_cast<std::uint32_t*>(kept.memory.begin), scratch_.begin}};
}

}  // namespace paceline::cuda
