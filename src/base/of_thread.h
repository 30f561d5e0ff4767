// A value of each thread that is there for as long as anything runs on the thread.
//
// A thread_local variable is not: the main thread's are destroyed before the process's exit handlers and the
// destructors of its static variables run, and those may call us.
#pragma once

#include <pthread.h>

#include <utility>

namespace paceline {

// This thread's value: one for each type, or for each name that a type tells it by. It is destroyed after the thread's
// thread_local variables, and at the process's end not at all.
template <class Value, class Name = Value>
Value& of_thread() {
  thread_local Value* value = nullptr;
  if (value == nullptr) [[unlikely]] {
    static const pthread_key_t key = [] {
      pthread_key_t made = 0;
      // Who asks while it is destroyed gets a new one.
      ::pthread_key_create(&made, [](void*) { delete std::exchange(value, nullptr); });
      return made;
    }();
    value = new Value();
    ::pthread_setspecific(key, value);
  }
  return *value;
}

}  // namespace paceline
