// Kernels that have waited long for another rank are told of: by a thread that looks each second, for the program's own
// may be waiting for the GPU.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/long_wait.h"
#include "cuda/gpu_engine.h"

namespace paceline {

// What is told of, look by look.
class KernelWaits {
 public:
  KernelWaits(const cuda::GpuEngine& engine, int rank, double timeout)
      : engine_(engine), rank_(rank), timeout_(timeout) {}

  void look();

 private:
  const cuda::GpuEngine& engine_;
  const int rank_;
  const double timeout_;
  std::optional<cuda::LongKernelWait> last_;
  LongWait told_;
};

class KernelWatch {
 public:
  // Where no thread can be started nothing is told.
  KernelWatch(const cuda::GpuEngine& engine, int rank, double timeout);
  ~KernelWatch();
  KernelWatch(const KernelWatch&) = delete;
  KernelWatch& operator=(const KernelWatch&) = delete;

 private:
  void run();

  KernelWaits waits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace paceline
