// The connections to a listener whose other side has yet to prove who it is. They have little time for it, and those
// that say nothing must not use up the descriptors: in a crowd they have less.
//
// For a loop around poll(): add_to(), poll() until next_end() at most, serve().
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "base/private_descriptor.h"
#include "base/status.h"
#include "bootstrap/handshake.h"
#include "bootstrap/socket.h"

namespace paceline {

class Strangers {
 public:
  // One is no stranger any more: the one that came as the `number`-th, from 1.
  using Known = std::function<void(const Hello& hello, PrivateDescriptor socket, std::uint64_t number)>;
  // One was dropped for what it said; `opened`: it had shown to be Paceline.
  using Dropped = std::function<void(const Status& why, bool opened)>;

  // At most `most` at a time. The listener must outlive this.
  Strangers(int listener, std::string secret, std::size_t most)
      : listener_(listener), secret_(std::move(secret)), most_(most) {}

  // What to poll for, behind what `polled` holds.
  void add_to(std::vector<pollfd>& polled);
  // Goes on as far as it can without waiting, and drops who has been silent too long. `polled`: all of what add_to()
  // has added to, whatever poll() returned. An error is the listener's.
  Status serve(std::span<const pollfd> polled, const Known& known, const Dropped& dropped);
  // While `wanted`, descriptors are needed elsewhere: nobody is let in, and who is here has the time of a crowd.
  void make_way(bool wanted) { making_way_ = wanted; }
  [[nodiscard]] bool empty() const { return strangers_.empty(); }
  // Of a wait until `deadline` in which nothing happens.
  [[nodiscard]] Clock::time_point next_end(Clock::time_point deadline) const;

 private:
  struct Stranger {
    PrivateDescriptor socket;
    Introduction introduction;
    std::uint64_t number;
    Clock::time_point since = Clock::now();

    Stranger(PrivateDescriptor accepted, const std::string& secret, std::uint64_t position)
        : socket(std::move(accepted)), introduction(socket.get(), secret), number(position) {}
  };

  [[nodiscard]] bool crowded() const { return making_way_ || out_of_descriptors_ || strangers_.size() >= most_; }
  [[nodiscard]] Clock::duration patience() const {
    return crowded() ? Clock::duration(crowded_time) : Clock::duration(introduction_time);
  }
  bool listen_to(Stranger& stranger, const Known& known, const Dropped& dropped);
  Status accept();
  void drop_slow();

  int listener_;
  std::string secret_;
  std::size_t most_;
  std::list<Stranger> strangers_;  // the longest here first
  std::uint64_t accepted_ = 0;
  std::size_t first_ = 0;  // of what add_to() has added
  bool out_of_descriptors_ = false;
  bool making_way_ = false;
};

}  // namespace paceline
