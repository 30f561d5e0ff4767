#include "comm/device_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/signals_blocked.h"
#include "cuda/driver/driver.h"
#include "transport/mismatch.h"

namespace paceline {
namespace {

// How long a rank that leaves waits for the end of its engine.
constexpr auto time_to_end = std::chrono::seconds(1);

// GPU memory is freed when all that runs on the GPU has ended, other communicators' kernels too, and these may wait for
// a rank that waits for this one to have left. So what takes long is left to a thread.
class Ends {
 public:
  static void begin(std::unique_ptr<cuda::GpuEngine> engine) {
    if (engine == nullptr) return;
    try {
      std::packaged_task<void()> task([its = std::move(engine)]() mutable { its.reset(); });
      std::future<void> end = task.get_future();
      {
        const SignalsBlocked blocked;
        std::thread(std::move(task)).detach();
      }
      if (end.wait_for(time_to_end) != std::future_status::ready) keep(std::move(end));
    } catch (const std::exception&) {  // no thread: it has ended with the task
    }
  }

 private:
  // At the process's exit they have a moment more: CUDA's exit handlers, which take down what they use, were registered
  // before this one and come after it.
  static void keep(std::future<void> end) {
    static std::once_flag once;
    std::call_once(once, [] { (void)std::atexit(wait_at_exit); });
    const std::lock_guard lock(mutex);
    under_way->push_back(std::move(end));
  }
  static void wait_at_exit() {
    const auto until = std::chrono::steady_clock::now() + time_to_end;
    const std::lock_guard lock(mutex);
    for (const std::future<void>& end : *under_way) (void)end.wait_until(until);
  }

  static std::mutex mutex;
  static std::vector<std::future<void>>* const under_way;  // never destroyed; guarded by the mutex
};
std::mutex Ends::mutex;
std::vector<std::future<void>>* const Ends::under_way = new std::vector<std::future<void>>;

}  // namespace

DeviceCalls::DeviceCalls(const std::vector<Member>& members, int rank, double timeout, Membership& membership)
    : members_(members), rank_(rank), timeout_(timeout), membership_(membership) {}

DeviceCalls::~DeviceCalls() {
  if (!origin_.is_here()) {
    // Their threads are the parent's, one of which may have held the membership's lock.
    [[maybe_unused]] const KernelWatch* const watch = watch_.release();
    [[maybe_unused]] const cuda::GpuEngine* const engine = engine_.release();
    return;
  }
  membership_.when_failed(this, {});
  membership_.when_left({});
  watch_.reset();
  Ends::begin(std::move(engine_));
}

Status DeviceCalls::connect(std::span<const GpuSetting> measured, const Gather& gather) {
  const auto elsewhere = [&](const Member& member) { return member.node != members_.front().node; };
  if (std::any_of(members_.begin(), members_.end(), elsewhere)) {
    why_none_ = "the ranks are on several nodes";
    log(LogLevel::info, rank_, "GPU buffers go through host memory: {}", why_none_);
    return {};
  }
  auto made = cuda::GpuEngine::create(rank_, static_cast<int>(members_.size()), timeout_, measured, gather);
  if (membership_.failed()) return membership_.failure();
  if (!made.ok()) {
    why_none_ = made.status().message();
    log(LogLevel::warn, rank_, "GPU buffers go through host memory, which is slow: {}", why_none_);
    return {};
  }
  use(std::move(*made));
  return {};
}

void DeviceCalls::use(std::unique_ptr<cuda::GpuEngine> engine) {
  engine_ = std::move(engine);
  membership_.when_failed(this, [engine = engine_.get()](const Status&) { engine->abort(); });
  membership_.when_left([engine = engine_.get()](int rank) { engine->left(rank); });
  watch_ = std::make_unique<KernelWatch>(*engine_, rank_, timeout_);
}

Status DeviceCalls::check_memory(const Request& request, void* stream) const {
  const int own = engine_->device();
  const auto check = [&](std::string_view which, const void* buffer, int gpu) -> Status {
    if (gpu < 0 || gpu == own || cuda::is_shared_with(own, buffer, stream)) return {};
    return Status(
        Code::invalid_argument,
        fmt::format("{}: the {} buffer is in the memory of GPU {}, but rank {} uses GPU {}, which was current "
                    "when its communicator was made: make GPU {} current before that (cudaSetDevice, "
                    "torch.cuda.set_device), or give a stream of GPU {} if this one reaches the memory",
                    title(request.which), which, gpu, rank_, own, gpu, own));
  };
  PACE_TRY(check("send", request.send, request.send_gpu));
  return check("receive", request.recv, request.recv_gpu);
}

void DeviceCalls::finish() {
  if (engine_ == nullptr || !origin_.is_here()) return;
  const Status ended = engine_->finish();
  if (!failure().ok() || ended.ok()) return;
  Status::Detail given_up = ended.detail();
  given_up.rank = rank_;
  given_up.message = fmt::format("rank {}: {}", rank_, ended.message());
  (void)membership_.report(Status(std::move(given_up)));
}

Status DeviceCalls::failure() const {
  if (engine_ == nullptr) return {};
  const auto complaint = engine_->complaint();
  if (!complaint) return {};
  if (complaint->mismatch) {
    Status::Detail found = mismatch(rank_, complaint->mine, complaint->rank, complaint->other).detail();
    const bool same = same_but_for_way(complaint->mine, complaint->other);
    if (same && complaint->by != complaint->other_by) {
      const auto how = [](std::string_view by) {
        return by.empty() ? std::string("as chosen") : fmt::format("by {}", by);
      };
      found.message =
          fmt::format("rank {} runs {} {}, but rank {} {}: force the same algorithm on every rank", rank_,
                      describe(complaint->mine), how(complaint->by), complaint->rank, how(complaint->other_by));
    } else if (same && complaint->other_table) {
      found.message = fmt::format("rank {} runs {} by another table than rank {}: give every rank the same profile",
                                  rank_, describe(complaint->mine), complaint->rank);
    } else if (same && complaint->by.empty()) {
      // Graphs' calls by the copy engines alone have ways then.
      const auto by_engines = [](const Call& call) { return call.size != with_way(call.size, 0); };
      if (by_engines(complaint->mine) && by_engines(complaint->other)) {
        found.message = fmt::format(
            "rank {} replays a graph's {} that was not captured together with rank {}'s: capture and replay graphs in "
            "the same order on every rank",
            rank_, describe(complaint->mine), complaint->rank);
      } else {
        const bool here = by_engines(complaint->mine);
        found.message = fmt::format(
            "rank {} replays a graph's {} that goes by the copy engines, but rank {} makes the call without them: "
            "replay it on every rank",
            here ? rank_ : complaint->rank, describe(complaint->mine), here ? complaint->rank : rank_);
      }
    }
    return membership_.report(Status(std::move(found)));
  }
  const Member& other = members_[static_cast<std::size_t>(complaint->rank)];
  Status::Detail detail;
  detail.code = complaint->left || complaint->gave_up ? Code::remote : Code::timeout;
  detail.rank = complaint->rank;
  detail.host = other.host;
  detail.peer = rank_;
  detail.collective = title(complaint->mine);
  if (complaint->left)
    detail.message =
        fmt::format("rank {} ({}, pid {}) left before {} on its GPU: it closed its communicator, or its program ended",
                    complaint->rank, other.host, other.pid, describe(complaint->mine));
  else if (complaint->gave_up)
    detail.message = fmt::format("rank {} ({}, pid {}) gave up {} while rank {} loaded from its GPU", complaint->rank,
                                 other.host, other.pid, describe(complaint->mine), rank_);
  else
    detail.message = fmt::format(
        "rank {} ({}, pid {}) did not come to {} on its GPU: rank {} waited {:g} s for it (PACELINE_TIMEOUT)",
        complaint->rank, other.host, other.pid, describe(complaint->mine), rank_, timeout_);
  return membership_.report(Status(std::move(detail)));
}

}  // namespace paceline
