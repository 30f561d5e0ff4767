// The thread that sleeps on a session's control connections: rank 0's on everyone's, the others' on their one to
// rank 0. It alone reads and writes them.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "bootstrap/control_connection.h"
#include "bootstrap/coordinator.h"
#include "bootstrap/rendezvous.h"

namespace paceline {

class Monitor {
 public:
  // `deliver` gets, on the monitor's thread, every message for this rank, and Death{0} if rank 0 goes without a
  // farewell. `gave_up` is called there, once, should that lack memory: the connections have been closed, so that the
  // others take this rank for dead, and no message comes any more. `look` is called there twice a second.
  static Result<std::unique_ptr<Monitor>> start(
      int rank, Assembly assembly, std::function<void(const ControlMessage&)> deliver, std::function<void()> gave_up,
      std::function<void()> look = [] {});
  // Sends what has been posted, for a fifth of a second at most, and closes the connections.
  ~Monitor();

  // A message to rank 0's coordinator. Any thread; does not block.
  void post(ControlMessage message);
  // Until all that has been posted is the kernel's, which sends it even if this process ends now; for half a second
  // at most. Not on the monitor's thread.
  void flush();

 private:
  Monitor(Assembly assembly, std::function<void(const ControlMessage&)> deliver, std::function<void()> gave_up,
          std::function<void()> look, PrivateDescriptor wake);
  void run();
  void serve();
  void send_posted();
  void sleep();
  void read(std::size_t rank);
  void take(std::size_t from, const ControlMessage& message);
  void ended(std::size_t rank, const Status& why);
  void wake();
  [[nodiscard]] bool finished();

  std::vector<ControlConnection> connections_;
  Assembly::Messages early_;
  std::function<void(const ControlMessage&)> deliver_;
  std::function<void()> gave_up_;
  std::function<void()> look_;
  Clock::time_point next_look_;
  std::optional<Coordinator> coordinator_;  // rank 0's
  bool farewell_ = false;                   // rank 0 has said it
  PrivateDescriptor wake_;

  std::mutex mutex_;  // guards the rest
  std::vector<ControlMessage> posted_;
  std::uint64_t posts_ = 0;  // so far, and how many of them have been sent
  std::uint64_t sent_ = 0;
  std::condition_variable sent_more_;
  std::optional<Clock::time_point> stop_by_;

  std::thread thread_;
};

}  // namespace paceline
