// How kernels wait: every spin looks up now and then, and ends when the communicator was aborted, when the other side
// has left or turns out to have called something else, or when its time is up. Who gives up raises the alarm first; the
// others of the kernel end at their next look.
//
// Kernels that were launched behind it would still give what this rank's buffers hold, and the buffers are the
// program's again, or hold what the call has not done. So who gives up also sets a word of the window, where looking
// costs no time (the alarm is in the host's memory), and a kernel that finds it set at its beginning gives nothing.
#pragma once

#include "cuda/calls/task.h"

namespace paceline::cuda {

// Reads and writes of words that other kernels, on this GPU or another, write or read. Volatile: they go to memory
// each time, in one piece up to 16 bytes.
__device__ inline std::uint32_t peek(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline std::uint64_t peek(const std::uint64_t* word) {
  std::uint64_t value;
  asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline void post(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ inline void post(std::uint64_t* word, std::uint64_t value) {
  asm volatile("st.volatile.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ inline uint4 peek(const uint4* vector) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(vector)
               : "memory");
  return v;
}
__device__ inline void post(uint4* vector, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(vector), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
// Acquire: what its writer wrote before it is seen by what this thread reads after it.
__device__ inline std::uint32_t peek_acquire(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline std::uint64_t peek_acquire(const std::uint64_t* word) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
// Release: what this thread wrote, or saw written, comes before it for whoever acquires it.
__device__ inline void post_release(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
// What this thread wrote, or saw written, before comes before what it writes after, for whoever sees that: in any
// kernel. Not a total order of everyone's fences, which __threadfence_system() makes and which takes longer.
__device__ inline void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

// A kernel is started while the one before it on the stream still runs (cuda_engine_calls.cc), so that its start costs
// no time. It must touch no memory before this: all that came before is done then. Measured: 0.5 us of a short call.
__device__ inline void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Brings the kernel's argument into the multiprocessor's cache, before that wait: else each of its lines is fetched
// when it is first needed, while the link is idle. Measured, with `held`: 0.5 us of a short call.
template <class Task>
__device__ inline void fetch(const Task& task) {
  constexpr unsigned line = 64;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&task);
  std::uint32_t any = 0;
#pragma unroll
  for (unsigned at = 0; at < sizeof(Task); at += line) any |= *reinterpret_cast<const std::uint32_t*>(bytes + at);
  any |= task.ranks;
  if (any == 0) __trap();  // never: but what is read must be used
}
// What is worked out before the wait and needed after it. Compilers put arithmetic where its result is used, but do not
// look through a shuffle, not even one that gives each thread its own. To be called by whole warps.
__device__ inline std::uint32_t held(std::uint32_t value) { return __shfl_sync(0xffffffff, value, threadIdx.x % 32); }
template <class T>
__device__ T* held(T* pointer) {
  const auto address = reinterpret_cast<unsigned long long>(pointer);
  return reinterpret_cast<T*>(__shfl_sync(0xffffffff, address, threadIdx.x % 32));
}
// From when on the next one may be started: after the wait, so that never more than one waits; in a long call near its
// end, since a kernel that waits keeps multiprocessors from what else the GPU has to do.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether a kernel of this rank has given up.
__device__ inline bool has_ended(const Terms& terms) { return peek(terms.ended) != 0; }
// Whether all kernels are to end, by the host or since one has given up.
__device__ inline bool is_to_end(const Terms& terms, std::uint32_t abort) {
  if (abort != 0) post(terms.ended, 1);
  return abort != 0;
}

// The first alarm stands. Its fields come before `raised`, which the host reads first.
__device__ inline void raise_alarm(const Terms& terms, AlarmCause cause, int rank, std::uint32_t number,
                                   std::uint64_t count, const Announcement& other) {
  post(terms.ended, 1);
  Alarm& alarm = *terms.alarm;
  if (atomicCAS_system(&alarm.abort, 0u, 1u) != 0u) return;
  alarm.cause = static_cast<std::uint32_t>(cause);
  alarm.rank = static_cast<std::uint32_t>(rank);
  alarm.number = number;
  alarm.what = terms.call_what;
  alarm.count = count;
  alarm.other_what = other.what;
  alarm.other_number = other.number;
  alarm.other_count = other.count;
  fence_system();
  post(&alarm.raised, 1);
}

// A message that is waited for: from `source` to this rank.
struct Expected {
  const Announcement* announced;
  int source;
  std::uint32_t number;
  std::uint64_t count;
};

template <class Task>
__device__ Expected expected(const Task& task, int source, std::uint32_t number) {
  return {&words(task.windows[task.rank]).announced[source][number % announcements], source, number,
          task.count_from(source)};
}

__device__ inline Announcement peek(const Announcement* announced) {
  const uint4 v = peek(reinterpret_cast<const uint4*>(announced));
  return {v.x, v.y, static_cast<std::uint64_t>(v.z) | static_cast<std::uint64_t>(v.w) << 32};
}

__device__ inline bool differs(const Terms& terms, const Expected& message, const Announcement& found) {
  return differs({message.number, terms.call_what, message.count}, found);
}

class Patience {
 public:
  __device__ explicit Patience(const Terms& terms) : terms_(terms) {}

  // To be asked after each look in vain. Waiting for a message:
  __device__ bool more(const Expected& message) { return (++looks_ & 511) != 0 || look_up(message); }
  // Waiting for `rank` to take message `number`. count: what is announced of it.
  __device__ bool more(int rank, std::uint32_t number, std::uint64_t count) {
    return (++looks_ & 511) != 0 || look_up({nullptr, rank, number, count});
  }
  // What was waited for has come; the next wait has all the time again.
  __device__ void renew() {
    since_ = 0;
    is_gone_ = false;
  }

 private:
  __device__ __noinline__ bool look_up(const Expected& message) {
    const std::uint64_t told = peek(reinterpret_cast<const std::uint64_t*>(&terms_.alarm->abort));
    if (is_to_end(terms_, static_cast<std::uint32_t>(told))) return false;
    if (message.announced != nullptr) {
      const Announcement found = peek(message.announced);
      if (differs(terms_, message, found)) {
        raise_alarm(terms_, AlarmCause::mismatch, message.source, message.number, message.count, found);
        return false;
      }
    }
    // All that the other did before it left was here when we were told: what is missing after more looks does not come.
    if ((told >> (32 + message.source) & 1) != 0) {
      if (is_gone_) {
        raise_alarm(terms_, AlarmCause::left, message.source, message.number, message.count, Announcement{});
        return false;
      }
      is_gone_ = true;
      fence_system();  // these looks come after the word
      return true;
    }
    if (since_ == 0) since_ = nanoseconds();
    const std::uint64_t waited = nanoseconds() - since_;
    if (waited < long_wait_ns && waited < terms_.timeout_ns) return true;
    const std::uint64_t more = grace(message);
    if (more == 0) post(&terms_.alarm->long_wait, LongWaitWord{terms_.call_what, message.source, waited}.pack());
    if (waited < terms_.timeout_ns || waited - terms_.timeout_ns < more) return true;
    raise_alarm(terms_, AlarmCause::timeout, message.source, message.number, message.count, Announcement{});
    return false;
  }

  // Who has come waits for another one itself, whose own waiter is to say so: it has more time, by a sixteenth, and who
  // does not take what it is given, and may have come, by half of that.
  __device__ std::uint64_t grace(const Expected& message) const {
    if (message.announced == nullptr) return terms_.timeout_ns / 32;
    return reached(peek(message.announced).number, message.number) ? terms_.timeout_ns / 16 : 0;
  }

  const Terms& terms_;
  unsigned looks_ = 0;
  bool is_gone_ = false;  // whom it waits for
  std::uint64_t since_ = 0;
};

}  // namespace paceline::cuda
