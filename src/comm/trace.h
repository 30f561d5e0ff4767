// Tracing: a transport put around each of a communicator's transports, which notes when messages were handed over, had
// come, and had been used. The engine does not know of it; of what no transport sees, copies and which messages were
// folded, it tells a watch.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/execution.h"

namespace paceline {

class TraceEvents;
class TracingTransport;
class TracingWatch;

class Trace {
 public:
  // Traces from now on, until the end of its life. The wiring must outlive it.
  explicit Trace(Wiring& wiring);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // This rank's events as a JSON array in Chrome's trace format: pid is the rank, tid the channel, times in
  // microseconds of the system clock. They are "send", "recv" (in "args", "reduces": folded, not only copied), "copy",
  // "wait" for a message and "wait for room" for one's own.
  Status write(const std::string& path) const;

 private:
  Wiring& wiring_;
  std::array<Transport*, max_transports> traced_;
  std::unique_ptr<TraceEvents> events_;
  std::array<std::unique_ptr<TracingTransport>, max_transports> tracers_;
  std::unique_ptr<TracingWatch> watch_;
};

}  // namespace paceline
