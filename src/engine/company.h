// What a rank learns of other programs on its CPU, where ranks share CPUs and wait by yielding.
//
// A yield gives another rank its turn, which does what is waited for: microseconds. But it gives another program its
// turn as well: milliseconds, whatever arrives in the meantime. A rank that sleeps is woken at once instead. A long
// turn alone does not tell the one from the other, since ranks compute between calls, and copy much. So ranks that have
// waited for a long turn, where more threads want a CPU than there are ranks, compare how long waits take by yielding
// and by sleeping: all of them at the same time by the clock, since nothing is gained where only some sleep. Where
// sleeping is much faster they go on so for a while, and then compare again.
#pragma once

#include <chrono>
#include <cstdint>

namespace paceline {

class Company {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Whether a wait sleeps where it would yield.
  [[nodiscard]] bool sleeps(Time now) {
    if (stage_ == Stage::none) return false;
    move_on(now);
    return stage_ == Stage::tries || stage_ == Stage::sleeps;
  }
  // Whether it wants to know how long waits take.
  [[nodiscard]] bool measures() const { return stage_ == Stage::suspected || stage_ == Stage::tries; }

  // A yield took so many microseconds. `ranks`: those of the job on this node.
  void yielded(double us, Time now, int ranks) {
    if (us > foreign_turn_us && stage_ == Stage::none && now >= suspects_from_) suspect(now, ranks);
  }
  // A wait has ended that took so many microseconds.
  void waited(double us) {
    if (++waits_ > 0) sum_us_ += us;
  }

 private:
  using Milliseconds = std::chrono::milliseconds;
  enum class Stage : std::uint8_t { none, suspected, tries, sleeps };

  // Of a turn: longer than most of what ranks do in one.
  static constexpr double foreign_turn_us = 2000;
  // Of waits on the mean: what is shorter is not worth a trial.
  static constexpr double long_wait_us = 1000;
  // How much shorter waits must be for sleeping to be kept: other calls may have been made meanwhile.
  static constexpr double gain = 3;
  static constexpr int enough_waits = 4;
  // So many trials in turn must be successful: waits before a call is under way are longer than those in it.
  static constexpr int enough_trials = 2;
  // By the clock, a trial is at the beginning of a period, and what is kept is kept to the end of a long one. What
  // was in vain is tried again at the next multiple of a span four times as long as the last, or of the longest.
  static constexpr Milliseconds trial{40};
  static constexpr Milliseconds period{128};
  static constexpr Milliseconds long_period{1024};
  static constexpr Milliseconds longest_pause{4096};

  void enter(Stage stage) {
    stage_ = stage;
    waits_ = -1;  // what goes on just then counts for neither
    sum_us_ = 0;
  }
  void suspect(Time now, int ranks);
  void give_up(Time now);
  void judge(Time now);
  void move_on(Time now);

  Stage stage_ = Stage::none;
  int waits_ = 0;
  double sum_us_ = 0;
  double by_yields_us_ = 0;  // a wait, on the mean
  int gained_ = 0;           // trials, in turn
  Time last_gain_;
  Milliseconds pause_ = period;
  Time suspects_from_;
  Time stage_ends_;
};

}  // namespace paceline
