// Threads for functions that no exception may leave.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

namespace paceline::nccl {

// A thread that runs the body; one that is not joinable where the system gives no more.
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace paceline::nccl
