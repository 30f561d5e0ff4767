// What stays in the process that makes a unique id, until rank 0 has joined: all ranks know one address, which is
// there.
//
//   rank 0 joins in this process: it takes the listener, and gathers the others there;
//   rank 0 joins in another process: it listens itself and tells the signpost where, by a port of its own for that; the
//   signpost shows the others the way.
//
// Until a rank 0 of another process has come, nobody takes a connection from the listener. Forked children have none of
// it: they are other processes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>

#include "base/origin.h"
#include "base/private_descriptor.h"
#include "base/status.h"
#include "bootstrap/control_connection.h"
#include "bootstrap/session.h"

namespace paceline {

class Signpost {
 public:
  // Listens on two free ports of the address. A thread waits there until it is taken down, or a rank 0 of another
  // process has met the others.
  static Result<std::shared_ptr<Signpost>> put_up(const std::string& address, std::string secret);

  [[nodiscard]] int port() const { return port_; }                // where ranks come
  [[nodiscard]] int rank_0_port() const { return rank_0_port_; }  // where a rank 0 of another process says where it is
  // Whether its thread has ended. Takes no lock.
  [[nodiscard]] bool is_over() const { return stage_.load(std::memory_order_relaxed) == Stage::over; }
  // What listens at port(), for a rank 0 of this process. Not valid in a forked one, or if a rank 0 of another process
  // has come before.
  PrivateDescriptor take_down();

 private:
  enum class Stage : std::uint8_t { waiting, taken, showing, over };

  Signpost(FileDescriptor listener, FileDescriptor announcements, FileDescriptor wake, std::string secret);
  void run();
  Frame wait_for_rank_0();
  void show(const Frame& news);
  bool enter(Stage next);

  const Origin origin_;
  const std::string secret_;
  const int port_, rank_0_port_;
  PrivateDescriptor listener_, announcements_, wake_;
  ControlConnection rank_0_;                   // the thread's
  std::atomic<Stage> stage_ = Stage::waiting;  // written with the mutex of signpost.cc
  std::condition_variable ended_;
};

// Rank 0, in another process than the one that put the signpost up: listens for the others, and says so there. `where`
// has the signpost's address and secret; its listener, address and port become this rank's, its timeout what is left.
// An error, which the others are told as well if anybody answers at `rank_0_port`.
Status gather_elsewhere(Rendezvous& where, int rank_0_port);
// A rank without others, in another process: the signpost may go. If nobody answers soon, it stays.
void dismiss(const Rendezvous& where, int rank_0_port);

}  // namespace paceline
