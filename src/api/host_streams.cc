// Host streams of paceline.h: calls on host memory that run in the background, in order.

#include "api/handle.h"

namespace paceline::api {
namespace {

// A thread's use of a stream, for whose end paceHostStreamDestroy waits.
class Use {
 public:
  // Seq_cst, as the exchange in paceHostStreamDestroy and the loads after the two: of a thread that takes the stream
  // and one that takes it away, one at least sees the other.
  explicit Use(std::atomic<int>& users) : users_(users) { users_.fetch_add(1, std::memory_order_seq_cst); }
  ~Use() {
    // Release: what this thread did with the stream comes before its end.
    if (users_.fetch_sub(1, std::memory_order_release) == 1) users_.notify_all();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<int>& users_;
};

// Each has what it waits for, when the stream ends or before, but may not know yet.
void wait_for_users(std::atomic<int>& users) {
  for (int count = users.load(std::memory_order_seq_cst); count != 0; count = users.load(std::memory_order_seq_cst))
    users.wait(count, std::memory_order_seq_cst);
}

// A function that asks something of a stream, or waits for it.
template <class Work>
paceResult_t entry_of(paceHostStream_t stream, Work work) {
  return entry([&]() -> Status {
    PACE_TRY(need(stream, "stream"));
    PACE_TRY(stream_of(stream).status());  // before it is written to: it is one
    const Use use(stream->users);
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
  return entry([&]() -> Status {
    PACE_TRY(need(stream, "stream"));
    const auto queue = stream_of(stream);
    PACE_TRY(queue.status());
    if (is_in_group(*queue))
      return Status(Code::invalid_usage, "the open group has calls for this stream: end the group first");
    HostStream* const ended = stream->stream.exchange(nullptr, std::memory_order_seq_cst);
    // A forked child leaves its copy alone: its thread is not there, nor are those that wait for it.
    if (ended == nullptr || ended->in_child()) return {};
    wait_for_users(stream->users);
    delete ended;
    return {};
  });
}

}  // extern "C"
