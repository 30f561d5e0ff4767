// The calls that a communicator was asked for last: a program makes the same few over and over. Of one with the same
// arguments as before nothing is checked or looked up again but what may have changed since. Calls on host memory only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "comm/communicator.h"
#include "paceline/paceline.h"

namespace paceline::api {

// The arguments of any call, as they came.
struct Arguments {
  Collective which;
  const void* send;
  void* recv;
  std::size_t count;
  paceDataType_t type;
  int op;
  int root;

  bool operator==(const Arguments&) const = default;
};

// Which of its buffers a call uses on this rank.
struct Uses {
  bool send = false;
  bool recv = false;
};

// A call whose arguments are right.
struct Checked {
  Request request;
  Uses uses;
  bool on_device = false;
};

// Used by the thread that is inside a call.
class FamiliarCalls {
 public:
  struct Call {
    bool any = false;
    Arguments arguments{};
    Checked checked;
    Communicator::KnownPlan plan;
  };

  // Where the call with these arguments would be; another one may be there, or none.
  Call& place(const Arguments& call) {
    const auto mixed = static_cast<std::size_t>(call.which) * 5 + static_cast<std::size_t>(call.root) * 3 + call.count +
                       (reinterpret_cast<std::uintptr_t>(call.send) >> 6) +
                       (reinterpret_cast<std::uintptr_t>(call.recv) >> 6);
    return calls_[mixed % calls_.size()];
  }

 private:
  std::array<Call, 16> calls_;
};

}  // namespace paceline::api
