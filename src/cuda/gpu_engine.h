// The CUDA engine: runs a communicator's calls on device memory. A call is launched on the caller's stream and returns.
//
// Made once for a communicator, by all its ranks together: each rank has a window on its GPU, and maps those of the
// others (CUDA IPC between processes, the pointer itself inside one).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/call.h"
#include "base/cards.h"
#include "base/status.h"
#include "cuda/calls/device_plan.h"
#include "engine/request.h"
#include "tuning/gpu_setting.h"

namespace paceline::cuda {

// What a kernel of this rank that gave up says: whom it waited for (or who called something else), in which call.
struct Complaint {
  bool mismatch = false;  // else it waited in vain
  bool left = false;      // for a rank that had left, else its time was up
  bool gave_up = false;   // or the other one has, in the midst of the call
  int rank = -1;
  Call mine;   // `sequence` counts the messages between the two ranks
  Call other;  // of a mismatch
  // The algorithm that was forced; empty: none.
  std::string_view by;
  std::string_view other_by;
  bool other_table = false;  // the same call, by another table of ways
};

// What a kernel that has waited for seconds says again and again, each time anew.
struct LongKernelWait {
  int rank = -1;  // who has not come
  Call call;      // `what` alone
  double seconds = 0;

  bool operator==(const LongKernelWait&) const = default;
};

class GpuEngine {
 public:
  // On the calling thread's current GPU. timeout: longest wait of a kernel for another rank, s. measured: this
  // machine's tables, if it has any.
  static Result<std::unique_ptr<GpuEngine>> create(int rank, int ranks, double timeout,
                                                   std::span<const GpuSetting> measured, const Gather& gather);
  // Waits for the kernels, a moment for the other ranks to let go of this window, and, where it frees memory, for all
  // that runs on the GPU.
  virtual ~GpuEngine() = default;

  // stream: a cudaStream_t, or nullptr for the default one.
  virtual Status run(const Request& request, void* stream) = 0;
  // The same by the schedule of an algorithm that serves it.
  virtual Status run_schedule(const Request& request, const Forced& forced, void* stream) = 0;
  // Sends and receives that go on side by side.
  virtual Status run_messages(std::span<const Request> messages, void* stream) = 0;
  // What comes on the stream `later` from now on follows what has come on `earlier`.
  virtual Status order(void* earlier, void* later) = 0;

  // Unmaps what other ranks have freed. Waits for the kernels of this GPU, if there is something.
  virtual void let_go() = 0;

  // Other tables from the next call on, the same on every rank.
  virtual void use_tables(std::span<const GpuSetting> measured) = 0;
  // The number of its GPU.
  [[nodiscard]] virtual int device() const = 0;
  [[nodiscard]] virtual const GpuMachine& machine() const = 0;
  [[nodiscard]] virtual const GpuChoice& choice() const = 0;

  // Every kernel of this rank ends soon, those launched later too. From any thread.
  virtual void abort() = 0;
  // A rank's kernels have all ended, and no more will come: what waits for more of them ends soon. From any thread.
  virtual void left(int rank) = 0;
  // Waits for this rank's kernels; if graphs have some of them, for all that runs on the GPU. Code::timeout: for longer
  // than the timeout none has ended.
  virtual Status finish() = 0;
  // Kernels that worked in the users' buffers themselves, ever. Waits for those launched so far.
  virtual Result<std::uint64_t> direct_calls() = 0;
  // Once a kernel has given up.
  [[nodiscard]] virtual std::optional<Complaint> complaint() const = 0;
  // The last that a kernel said; none: none ever did. From any thread.
  [[nodiscard]] virtual std::optional<LongKernelWait> long_wait() const = 0;
};

}  // namespace paceline::cuda
