// A mutex that threads of the process may hold when another one forks: its child would find it locked for ever.
#pragma once

#include <pthread.h>

#include <mutex>

namespace paceline {

// From the first call on every fork waits for the mutex, and both processes go on with it free. For mutexes under which
// no other one of these is taken.
template <std::mutex& mutex>
void hold_while_forking() {
  static const int once = ::pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  (void)once;
}

}  // namespace paceline
