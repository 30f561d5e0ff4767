// What stays in the process that makes a unique id, until rank 0 has joined: all ranks know one address, which is
// there.
//
//   rank 0 joins in this process, or in a forked child: it takes the listener, and gathers the others there;
//   rank 0 joins in another process: it listens itself, tells the signpost where, by a port of its own for that, and
//   the signpost shows the others the way.
//
// Until a rank 0 of another process has come, nobody takes a connection from the listener.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/file_descriptor.h"
#include "base/origin.h"
#include "base/private_descriptor.h"
#include "base/status.h"
#include "bootstrap/control_connection.h"
#include "bootstrap/session.h"

namespace paceline {

class Signpost {
 public:
  // Listens on two free ports of the address. A thread waits there until it is taken down, or all have been shown the
  // way.
  static Result<std::shared_ptr<Signpost>> put_up(const std::string& address, std::string secret);

  [[nodiscard]] int port() const { return port_; }                // where ranks come
  [[nodiscard]] int rank_0_port() const { return rank_0_port_; }  // where a rank 0 of another process says where it is
  // Whether its thread has ended. Takes no lock.
  [[nodiscard]] bool is_over() const { return stage_.load(std::memory_order_relaxed) == Stage::over; }
  // Whether this process has forked from the one that put it up, and has a copy of the listener.
  [[nodiscard]] bool is_inherited() const { return !origin_.is_here(); }
  // What listens at port(), for a rank 0 of this process. Not valid: one of another process has come before.
  FileDescriptor take_down();

 private:
  enum class Stage : std::uint8_t { waiting, taken, showing, over };

  Signpost(FileDescriptor listener, FileDescriptor announcements, FileDescriptor wake, std::string secret);
  void run();
  std::optional<Place> wait_for_rank_0();
  void show_the_way(const Place& to);
  bool enter(Stage next);

  const Origin origin_;
  const std::string secret_;
  const int port_, rank_0_port_;
  FileDescriptor listener_;
  PrivateDescriptor announcements_, wake_;
  ControlConnection rank_0_;                   // the thread's
  std::atomic<Stage> stage_ = Stage::waiting;  // written with the mutex of signpost.cc
  std::condition_variable ended_;
};

// Rank 0, in another process than the one that put the signpost up: listens for the others, and says so there. `where`
// has the signpost's address and secret; its listener, address and port become this rank's. An error if nobody answers
// at `rank_0_port`.
Status gather_elsewhere(Rendezvous& where, int rank_0_port);
// Rank 0, in a forked child: it gathers at the signpost's listener, of which it has a copy. Tells the signpost to go,
// if its process still runs.
void gather_in_its_place(const Rendezvous& where, int rank_0_port);

}  // namespace paceline
