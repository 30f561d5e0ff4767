// The plans that a communicator has on its GPU: each is made and uploaded at the first call of its shape, and kept.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <vector>

#include "cuda/calls/device_plan.h"

namespace paceline::cuda {

// What a graph has captured may be used again at any time: it is kept to the end.
struct DeviceMemory {
  std::byte* begin = nullptr;
  std::uint64_t bytes = 0;
  bool captured = false;
};

// A plan to be run, and where it lies.
struct ReadyPlan {
  const DevicePlan* plan = nullptr;
  PlanMemory memory;
};

class DevicePlanCache {
 public:
  // On the calling thread's current GPU, as all calls here. uploads: a stream for uploads alone.
  DevicePlanCache(int rank, int ranks, int device, cudaStream_t uploads);
  // Once no kernel runs.
  ~DevicePlanCache();
  DevicePlanCache(const DevicePlanCache&) = delete;
  DevicePlanCache& operator=(const DevicePlanCache&) = delete;

  // For a call that comes next on `stream`, behind all calls before. Never waits for kernels: in a thread with several
  // ranks they may wait for this call.
  Result<ReadyPlan> ready(const Request& request, const Forced& forced, cudaStream_t stream);

 private:
  struct Key {
    const Algorithm* algorithm;
    Collective which;
    DataType type;
    Operation op;
    int root;
    std::size_t count;
    std::size_t chunk_bytes;  // asked for; 0: none
    int radix;                // the same
    bool in_place;
    auto operator<=>(const Key&) const = default;
  };
  struct Kept {
    DevicePlan plan;
    DeviceMemory memory;     // progress words, then steps
    std::uint64_t used = 0;  // number of its last use
  };

  Result<DeviceMemory> allocate(std::uint64_t bytes);
  void drop(const DeviceMemory& memory, cudaStream_t stream);
  Status upload(Kept& kept);
  Status reserve_scratch(std::uint64_t bytes, cudaStream_t stream, bool captured);
  void trim(const Kept& current, cudaStream_t stream);

  const int rank_;
  const int ranks_;
  const int device_;
  const cudaStream_t uploads_;
  cudaMemPool_t pool_ = nullptr;
  std::map<Key, Kept> plans_;
  std::uint64_t plan_bytes_ = 0;
  std::uint64_t uses_ = 0;
  DeviceMemory scratch_;                // of all plans: they run one after the other
  std::vector<DeviceMemory> outgrown_;  // earlier scratch that graphs still use
};

}  // namespace paceline::cuda
