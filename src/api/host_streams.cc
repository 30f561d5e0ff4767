// Host streams of paceline.h: calls on host memory that run in the background, in order.

#include "api/handle.h"

namespace paceline::api {
namespace {

// A function that asks something of a stream, or waits for it.
template <class Work>
paceResult_t entry_of(paceHostStream_t stream, Work work) {
  return entry([&]() -> Status {
    PACE_TRY(need(stream, "stream"));
    const auto queue = stream_of(stream);
    return queue.ok() ? work(**queue) : queue.status();
  });
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceHostStreamCreate(paceHostStream_t* stream) {
  return entry([&]() -> Status {
    PACE_TRY(need(stream, "stream"));
    *stream = make_stream_handle(std::make_unique<HostStream>());
    return {};
  });
}

paceResult_t paceHostStreamSynchronize(paceHostStream_t stream) {
  return entry_of(stream, [](HostStream& queue) { return queue.synchronize(); });
}

paceResult_t paceHostStreamQuery(paceHostStream_t stream) {
  return entry_of(stream, [](HostStream& queue) { return queue.query(); });
}

paceResult_t paceHostStreamMark(paceHostStream_t stream, uint64_t* mark) {
  return entry_of(stream, [&](HostStream& queue) -> Status {
    PACE_TRY(need(mark, "mark"));
    *mark = queue.mark();
    return {};
  });
}

paceResult_t paceHostStreamWait(paceHostStream_t stream, uint64_t mark, double seconds) {
  return entry_of(stream, [&](HostStream& queue) { return queue.wait(mark, seconds); });
}

paceResult_t paceHostStreamResult(paceHostStream_t stream, uint64_t number) {
  return entry_of(stream, [&](HostStream& queue) { return queue.result(number); });
}

paceResult_t paceHostStreamDestroy(paceHostStream_t stream) {
  return entry_of(stream, [&](HostStream& queue) -> Status {
    if (is_in_group(&queue))
      return Status(Code::invalid_usage, "the open group has calls for this stream: end the group first");
    // A forked child leaves its copy alone: its thread is not there.
    if (HostStream* const ended = stream->stream.exchange(nullptr, std::memory_order_relaxed); !queue.in_child())
      delete ended;
    return {};
  });
}

}  // extern "C"
