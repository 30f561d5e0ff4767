// Schedules as the simulator sees them: what their steps do and how long they are, not which data they move.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace paceline {

// A rank's steps, as far as time depends on them.
class Program {
 public:
  struct Act {
    Action action = Action::send;
    std::uint8_t channel = 0;
    bool own = false;              // of a recv_reduce: it has a local operand
    std::uint32_t first_peer = 0;  // in `peers`
    std::uint32_t peer_count = 0;
    double bytes = 0;
  };
  // Of one rank of a schedule that keeps it.
  Program(Schedule& schedule, int rank, std::size_t element_bytes);

  std::vector<Act> acts;
  std::vector<int> peers;
  int channels = 1;
};

// One collective. Several may run at once.
struct Traffic {
  std::string name = "collective";  // for the timeline
  std::vector<Program> programs;    // of rank 0, 1, ...
  std::vector<int> gpus = {};       // rank r is on GPU gpus[r]; empty: on GPU r
  int ranks = 0;                    // 0: as many as programs; see WayFinder::fold()
  double begin = 0;                 // us
};

// All ranks' programs. The schedule must keep all ranks.
Traffic traffic_of(Schedule& schedule, std::size_t element_bytes, std::vector<int> gpus = {});

// Whether ranks first, first + 1, ..., whose programs are `others`, do what ranks 0, 1, ... of all `ranks` do, with
// peers `first` further on, past the last one from 0 on.
bool same_shifted(std::span<const Program> programs, std::span<const Program> others, int first, int ranks);

}  // namespace paceline
