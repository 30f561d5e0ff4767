#include "engine/company.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/file_text.h"

namespace paceline {
namespace {

// The last moment that is a multiple of `span`: the same for all processes of a machine.
Company::Time begin_of(Company::Time now, std::chrono::milliseconds span) {
  return now - now.time_since_epoch() % span;
}

// Whether more threads of the machine than so many run, or wait for a CPU; true where nobody says.
bool more_run_than(int ranks) {
  const std::optional<std::string> load = read_text("/proc/loadavg");
  int running = 0;
  return !load || std::sscanf(load->c_str(), "%*s %*s %*s %d", &running) != 1 || running > ranks;
}

}  // namespace

void Company::suspect(Time now, int ranks) {
  if (more_run_than(ranks))
    enter(Stage::suspected);
  else
    suspects_from_ = begin_of(now, period) + period;
}

void Company::give_up(Time now) {
  gained_ = 0;
  pause_ = std::min(4 * pause_, longest_pause);
  // One period before the next multiple of it, so that waits by yielding are known then.
  suspects_from_ = begin_of(now + period, pause_) + pause_ - period;
  enter(Stage::none);
}

// At the end of a trial, or long after it, if no wait was under way just then.
void Company::judge(Time now) {
  if (now >= stage_ends_ + period) {  // what it has found is old
    gained_ = 0;
    return enter(Stage::none);
  }
  if (waits_ < enough_waits || sum_us_ / waits_ * gain > by_yields_us_) return give_up(now);
  pause_ = period;
  if (now >= last_gain_ + long_period + 2 * period) gained_ = 0;
  last_gain_ = now;
  if (++gained_ < enough_trials) return enter(Stage::none);
  enter(Stage::sleeps);
  stage_ends_ = begin_of(now, long_period) + long_period;
}

void Company::move_on(Time now) {
  if (stage_ == Stage::suspected) {
    const Time begin = begin_of(now, period);
    if (waits_ < enough_waits || now >= begin + trial) return;
    by_yields_us_ = sum_us_ / waits_;
    if (by_yields_us_ < long_wait_us) return give_up(now);
    enter(Stage::tries);
    stage_ends_ = begin + trial;
  } else if (now >= stage_ends_) {
    stage_ == Stage::sleeps ? enter(Stage::none) : judge(now);
  }
}

}  // namespace paceline
