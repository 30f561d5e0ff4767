// From a checked call to its run: now, on a stream, or at the end of a group.

#include <algorithm>
#include <atomic>
#include <utility>

#include "api/group.h"
#include "base/of_thread.h"

namespace paceline::api {
namespace {

// This thread's open group.
struct Group {
  int depth = 0;
  Status error;  // of the first call that failed its checks
  std::vector<Queued> calls;
  std::vector<OnDevice> device_calls;
};
Group& group() { return of_thread<Group>(); }
// Of all threads: while there is none, nobody has to find out about his own.
std::atomic<int> open_groups{0};

// Relaxed: a thread sees what it did itself.
bool in_group() { return open_groups.load(std::memory_order_relaxed) != 0 && group().depth > 0; }

Status run_now(paceComm* comm, const Arguments& arguments, const Checked& call) {
  Communicator& communicator = *comm->communicator;
  // Calls on a communicator keep their order: a blocking one comes after those queued on streams.
  PACE_TRY(after_queued(*comm));
  const Hold hold(communicator);
  if (!hold.held()) [[unlikely]]
    return two_threads();
  if (arguments.op >= paceNumOps) return communicator.run(call.request);  // an operator may be another one next time
  FamiliarCalls::Call& place = comm->familiar->place(arguments);
  place = {true, arguments, call, {}};
  return communicator.run(call.request, place.plan);
}

}  // namespace

Status run_familiar(paceComm* comm, const Arguments& arguments, bool& done) {
  if (!is_valid(comm) || comm->in_child() || in_group()) return {};
  if (Status given_up = after_queued(*comm); !given_up.ok()) [[unlikely]] {
    done = true;
    return given_up;
  }
  const Hold hold(*comm->communicator);
  if (!hold.held()) [[unlikely]]
    return {};
  FamiliarCalls::Call& call = comm->familiar->place(arguments);
  if (call.arguments != arguments || !call.any) return {};
  if (gpus_in_use()) {
    const auto on_device = is_on_device(call.checked.request, call.checked.uses.send, call.checked.uses.recv, nullptr);
    if (!on_device.ok() || *on_device) return {};
  }
  done = true;
  return comm->communicator->run(call.checked.request, call.plan);
}

Status submit(paceComm* comm, const Arguments& arguments, const Checked& call, void* stream) {
  const Request& request = call.request;
  if (call.on_device) {
    if (in_group()) {
      group().device_calls.push_back({comm, request, stream});
      return {};
    }
    return inside(*comm, [&](Communicator& communicator) {
      return is_message(request.which) ? communicator.run_messages_on_device({&request, 1}, stream)
                                       : communicator.run_on_device(request, stream);
    });
  }
  if (stream == nullptr && !in_group()) [[likely]]
    return run_now(comm, arguments, call);
  auto queue_on = stream_of(stream);
  if (!queue_on.ok()) return queue_on.status();
  if (stream != nullptr && (*queue_on)->in_child()) return HostStream::no_thread();
  if (in_group()) {
    group().calls.push_back({comm, request, *queue_on});
  } else {
    queue(**queue_on, {{comm, request, *queue_on}});
  }
  return {};
}

void spoil_group(const Status& status) {
  if (in_group() && group().error.ok()) group().error = status;
}

bool is_in_group(const HostStream* stream) {
  return in_group() && std::ranges::any_of(group().calls, [&](const Queued& call) { return call.stream == stream; });
}

Status start_group() {
  if (group().depth++ == 0) open_groups.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Status end_group() {
  if (group().depth == 0) return Status(Code::invalid_usage, "paceGroupEnd without paceGroupStart");
  if (--group().depth > 0) return {};
  open_groups.fetch_sub(1, std::memory_order_relaxed);
  std::vector<Queued> calls = std::exchange(group().calls, {});
  std::vector<OnDevice> device_calls = std::exchange(group().device_calls, {});
  std::vector<paceComm*> whose;
  whose.reserve(calls.size() + device_calls.size());
  for (const Queued& call : calls) whose.push_back(call.comm);
  for (const OnDevice& call : device_calls) whose.push_back(call.comm);
  Status status = std::exchange(group().error, Status());
  if (status.ok()) status = run_group(std::move(calls), std::move(device_calls));
  if (!status.ok())
    for (paceComm* comm : whose) note_in_group(status, comm);
  return status;
}

}  // namespace paceline::api
