// A mutex that threads of the process may hold when another one forks: its child would find it locked for ever.
#pragma once

#include <pthread.h>

#include <mutex>

namespace paceline {

// Of a mutex in namespace scope, beside it, so that every fork since the library was loaded waits for the mutex, and
// both processes go on with it free. For mutexes under which no other one of these is taken.
template <std::mutex& mutex>
class HeldWhileForking {
 public:
  HeldWhileForking() noexcept {
    ::pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  }
};

}  // namespace paceline
