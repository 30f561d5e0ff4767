// The CUDA engine's state. How it is made, and how it ends, is in cuda_engine.cc; calls become kernels in
// cuda_engine_calls.cc, in the users' buffers in cuda_engine_direct.cc, and are watched in cuda_engine_watch.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/calls/engine_copies.h"
#include "cuda/calls/exchange.h"
#include "cuda/device_plan_cache.h"
#include "cuda/driver/side_stream.h"
#include "cuda/gpu_engine.h"
#include "cuda/kernels/kernels.h"
#include "cuda/memory/registration.h"
#include "cuda/pinned_page.h"

namespace paceline::cuda {

struct Card;  // what a rank shows the others

class CudaEngine final : public GpuEngine {
 public:
  CudaEngine(int rank, int ranks, double timeout) : rank_(rank), ranks_(ranks), layout_(WindowLayout::of(ranks)) {
    timeout_ns_ = static_cast<std::uint64_t>(timeout * 1e9);
  }
  ~CudaEngine() override;

  Status connect(std::span<const GpuSetting> measured, const Gather& gather);

  void let_go() override;
  void use_tables(std::span<const GpuSetting> measured) override;
  [[nodiscard]] int device() const override { return device_; }
  [[nodiscard]] const GpuMachine& machine() const override { return machine_; }
  [[nodiscard]] const GpuChoice& choice() const override { return choice_; }

  Status run(const Request& request, void* stream) override;
  Status run_schedule(const Request& request, const Forced& forced, void* stream) override;
  Status run_messages(std::span<const Request> messages, void* stream) override;
  Status order(void* earlier, void* later) override;
  void abort() override;
  void left(int rank) override;
  Status finish() override;
  Result<std::uint64_t> direct_calls() override;
  [[nodiscard]] std::optional<Complaint> complaint() const override;
  [[nodiscard]] std::optional<LongKernelWait> long_wait() const override;

 private:
  Status allocate(Card& card);
  Status map(const std::vector<Card>& cards);
  void look_at_machine(const std::vector<Card>& cards);
  void agree_on_table(const std::vector<Card>& cards);
  Status load_kernels();
  void complete(Terms& terms, std::byte* (&windows)[max_gpus]) const;
  void open_boards(const std::vector<Card>& cards);
  void offer(MessageTask& task);
  bool see(const Request& request, DirectTask& task) const;
  void look(const Request& request, DirectTask& task);
  [[nodiscard]] bool is_leaving() const;
  Status run_direct(DirectTask& task, const Launch& how, const Request& request, cudaStream_t stream);
  std::optional<Registration::Agreement> agree_on_engines(const Request& request, const DirectTask& task);
  Status run_engines(const Request& request, const DirectTask& task, const Registration::Agreement& agreement,
                     cudaStream_t stream);
  Status keep_own(const EngineCopy& copy, const Request& request);
  Status meet(const Terms& call, std::uint32_t agreement, cudaStream_t stream);
  Status run_wave(std::span<const Request* const> wave, cudaStream_t stream);
  Status start(const void* kernel, const Launch& how, void* argument, cudaStream_t stream);
  Status follow(cudaStream_t stream);
  void let_others_catch_up() const;
  cudaError_t count_ended(std::chrono::steady_clock::time_point until, std::uint32_t& done);
  Status wait_for_blocks(std::chrono::nanoseconds patience);
  void wait_for_gpu() const;
  void say_farewell();

  const int rank_;
  const int ranks_;
  const WindowLayout layout_;
  std::uint64_t timeout_ns_;
  int device_ = 0;
  GpuMachine machine_;
  GpuChoice choice_;
  std::array<std::byte*, max_gpus> windows_{};
  std::array<bool, max_gpus> opened_{};         // mapped by IPC
  std::unique_ptr<Registration> registration_;  // none: no rank's buffers are known to the others
  std::unique_ptr<PinnedPage> page_;
  Alarm* alarm_ = nullptr;                         // there
  cudaStream_t own_stream_ = nullptr;              // for what is no call
  std::optional<unsigned long long> last_stream_;  // of calls that no graph holds; none: there was no such call
  std::uint32_t blocks_ = 0;                       // that were launched for them, ever, counting in a circle
  bool counts_ = false;                            // the call that is being made is one of them
  bool in_graphs_ = false;                         // some call is in a graph
  bool shares_gpu_ = false;                        // with another rank: clusters might not find room
  cudaEvent_t last_call_ = nullptr;                // has come when the last of those calls has ended, where it does
  bool on_hopper_ = false;                         // or later: kernels may start early, and have clusters
  int large_shared_bytes_ = large_shared_bytes;
  std::unique_ptr<DevicePlanCache> plans_;  // nullptr: no algorithm was forced so far
  std::unique_ptr<SideStream> side_;        // nullptr: none was needed so far
  Registration::Holds holds_;               // that no graph has taken
};

}  // namespace paceline::cuda
