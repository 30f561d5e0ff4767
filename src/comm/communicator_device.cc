// The communicator's calls on GPU memory.
#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "comm/host_copies.h"
#include "comm/lack.h"

namespace paceline {

Status Communicator::connect_devices(Serves by) {
  Status connected;
  try {
    std::vector<Member> members;
    for (int rank : session_ranks_) members.push_back(session_->members()[static_cast<std::size_t>(rank)]);
    device_calls_ = std::make_unique<DeviceCalls>(members, rank(), options_.timeout, *membership_);
    const std::span<const GpuSetting> measured = profile_ ? profile_->gpus : std::span<const GpuSetting>();
    connected =
        device_calls_->connect(measured, [&](std::span<const std::byte> mine) { return gather_bytes(mine, by); });
  } catch (const std::exception& error) {
    // It would have no engine where the others have theirs: they learn why.
    break_off(fmt::format("could not connect its GPU to the others': {}", error.what()));
    return membership_->failure();
  }
  // Release: what the connection made comes before the threads that ask for errors find it.
  watched_.store(device_calls_.get(), std::memory_order_release);
  return connected;
}

Result<std::string> Communicator::gpu_table() const {
  const cuda::GpuEngine* const engine = device_calls_ == nullptr ? nullptr : device_calls_->engine();
  if (engine == nullptr)
    return Status(Code::unsupported,
                  fmt::format("calls on GPU memory go through host memory: they are launched by no table{}",
                              device_calls_ == nullptr ? "" : fmt::format(" ({})", device_calls_->why_none())));
  nlohmann::json written = write_gpu_setting({engine->machine(), engine->choice().table.rows()});
  written["source"] = engine->choice().source;
  return written.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// The host's engine does the work, on copies. Slow and blocking: where there is none for the GPUs.
Status Communicator::run_through_host(std::span<const Request> calls, void* stream) {
  HostCopies copies;
  std::vector<Request> on_host;
  const Status loaded = begun_by([&]() -> Status {
    for (const Request& call : calls) copies.add(call, stream, rank(), size());
    PACE_TRY(copies.load());
    for (std::size_t i = 0; i < calls.size(); ++i) on_host.push_back(copies.on_host(i));
    return {};
  });
  if (!loaded.ok()) return not_begun(calls.front().which, loaded);
  const std::vector<Communicator*> here(calls.size(), this);
  PACE_TRY(run_group(here, on_host));
  for (std::size_t i = 0; i < calls.size(); ++i) PACE_TRY(copies.store(i));
  return {};
}

Status Communicator::meet_on_gpus() {
  if (device_calls_ != nullptr) return {};
  return connect_devices(Serves::first_gpu_call);
}

Status Communicator::run_on_device(const Request& request, void* stream) {
  PACE_TRY(failure());
  PACE_TRY(meet_on_gpus());
  cuda::GpuEngine* const engine = device_calls_->engine();
  if (engine == nullptr) return run_through_host({&request, 1}, stream);
  PACE_TRY(device_calls_->check_memory(request, stream));
  const Status begun = begun_by([&]() -> Status {
    const Algorithm* const forced = algorithm_named(forced_.algorithm);
    if (forced != nullptr && request.count != 0 && serves(*forced, problem_of(request, size()), paths_.get()))
      return engine->run_schedule(request, {forced, asked(), paths_}, stream);
    return engine->run(request, stream);
  });
  return begun.ok() ? begun : not_begun(request.which, begun);
}

Status Communicator::run_messages_on_device(std::span<const Request> messages, void* stream) {
  PACE_TRY(failure());
  PACE_TRY(meet_on_gpus());
  cuda::GpuEngine* const engine = device_calls_->engine();
  if (engine == nullptr) return run_through_host(messages, stream);
  std::vector<const Request*> all;
  for (const Request& message : messages) {
    PACE_TRY(device_calls_->check_memory(message, stream));
    all.push_back(&message);
  }
  if (auto own = messages_to_self(all, rank()); !own.ok()) return own.status();
  const Status begun = begun_by([&] { return engine->run_messages(messages, stream); });
  return begun.ok() ? begun : not_begun(messages.front().which, begun);
}

Status Communicator::order_streams(void* earlier, void* later) {
  PACE_TRY(failure());
  if (!gpus_direct()) return {};  // through host memory calls wait for their streams
  return begun_by([&] { return device_calls_->engine()->order(earlier, later); });
}

}  // namespace paceline
