// A value of each thread that is there for as long as anything runs on the thread.
//
// A thread_local variable is not: the main thread's are destroyed before the process's exit handlers and the
// destructors of its static variables run, and those may call us.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace paceline {

inline bool is_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

// This thread's value: one for each type, or for each name that a type tells it by. The main thread's is never
// destroyed; another thread's is with its thread_local variables, and one that is asked for still later is a new one.
template <class Value, class Name = Value>
Value& of_thread() {
  thread_local Value* value = nullptr;
  if (value == nullptr) [[unlikely]] {
    value = new Value();
    struct End {
      ~End() {
        // Asked here, for a fork makes the main thread of another one.
        if (!is_main_thread()) delete std::exchange(value, nullptr);
      }
    };
    thread_local End end;
    (void)end;
  }
  return *value;
}

}  // namespace paceline
