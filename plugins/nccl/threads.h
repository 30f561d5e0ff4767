// Threads for functions that no exception may leave.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/signals_blocked.h"

namespace paceline::nccl {

// A thread that runs the body, and takes no signals of the program's; one that is not joinable where the system gives
// no more.
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    const SignalsBlocked blocked;
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace paceline::nccl
