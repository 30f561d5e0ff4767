// What threads of ours do until the process ends, and no longer: with memory, for one, that another library's exit
// handler gives back.
#pragma once

#include <mutex>

namespace paceline {

class UntilExit {
 public:
  // Its end is an exit handler, which comes before those that have been registered so far. Once a process.
  static void begin();

  // Runs act(), unless that end has come; it does not come meanwhile.
  template <class Act>
  static void run(const Act& act) {
    const std::lock_guard lock(mutex);
    if (!over) act();
  }

 private:
  static std::mutex mutex;
  static bool over;  // guarded by it
};

}  // namespace paceline
