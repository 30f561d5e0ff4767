/* Makes calls of C libraries many times in a row: Python needs longer for one than a GPU library does
 * (repeat_calls.py). */

#include <time.h>

/* As the x86-64 and Arm conventions have it: who is called takes as many of the arguments as it has. */
struct call {
  int (*function)(long, long, long, long, long, long, long, long, long);
  long arguments[9];
};

/* 0, or what the first call that fails returns. */
int repeat_calls(const struct call* calls, int count, int times) {
  for (int time = 0; time < times; ++time)
    for (int i = 0; i < count; ++i) {
      const long* a = calls[i].arguments;
      const int result = calls[i].function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
      if (result != 0) return result;
    }
  return 0;
}

static long nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* One call many times, and what each took, nanoseconds. */
int timed_calls(const struct call* call, int times, long* took) {
  const long* a = call->arguments;
  for (int time = 0; time < times; ++time) {
    const long begin = nanoseconds();
    const int result = call->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    took[time] = nanoseconds() - begin;
    if (result != 0) return result;
  }
  return 0;
}
