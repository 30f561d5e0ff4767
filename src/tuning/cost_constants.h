// The constants of the cost model (schedule/cost.h), a row each: their names in requests and profiles, the values that
// make sense, what tells them. Requests, profiles, the fit and what lies between two settings go by these rows: a new
// constant is a member of CostModel, a row here and a word in docs/tuning.md.
#pragma once

#include <cstdint>

#include "schedule/cost.h"

namespace paceline {

struct CostConstant {
  struct Range {
    double least, most;  // inclusive
  };
  struct Quantity {
    double unit;         // of the model, in that of profiles
    Range in_requests;   // in the model's unit
    Range in_profiles;   // in that of profiles
    double search_step;  // what changes it as a factor of e does a rate; 0: it is looked for by factors
  };
  // Which measured times tell it.
  enum Told : std::uint8_t {
    by_all,
    in_memory,   // those of ranks of one node in shared memory: between machines a start hides what a call costs
    elsewhere,   // and those of all others
    by_sharing,  // where ranks share CPUs
    by_nodes,    // where they share nodes
    by_others,   // none: it follows from other constants
    by_place,    // none: it follows from where the ranks are
  };
  const char* name;
  double CostModel::*field;
  const Quantity& quantity;
  Told told;
  const char* in_profiles = nullptr;  // its name there; nullptr: they do not have it
  bool is_later = false;              // there are profiles from before it, for which it is 0
};

inline constexpr CostConstant::Quantity cost_time{1, {0, 1e9}, {0, 1e6}, 0};
inline constexpr CostConstant::Quantity cost_time_if_any{1, {0, 1e9}, {0, 1e6}, 1};
inline constexpr CostConstant::Quantity cost_rate{1e-3, {1e-6, 1e15}, {1e-6, 1e6}, 0};
inline constexpr CostConstant::Quantity cost_share{1, {0, 1}, {0, 1}, 0.3};
inline constexpr CostConstant::Quantity cost_multiple{1, {0, 10}, {0, 10}, 0.3};
inline constexpr CostConstant::Quantity cost_ranks{1, {0, 1e6}, {1, 1e6}, 0};

// In the order in which the fit tries them.
inline constexpr CostConstant cost_constants[] = {
    {"start", &CostModel::start, cost_time, CostConstant::by_all, "start_us"},
    {"step", &CostModel::step, cost_time, CostConstant::by_all, "step_us"},
    {"partner", &CostModel::partner, cost_time, CostConstant::by_all, "partner_us", true},
    {"board", &CostModel::board, cost_time, CostConstant::by_all, "board_us", true},
    {"receiver", &CostModel::receiver, cost_time, CostConstant::by_all, "receiver_us", true},
    {"bandwidth", &CostModel::bandwidth, cost_rate, CostConstant::by_all, "bandwidth_gbs"},
    {"reduce_bandwidth", &CostModel::reduce_bandwidth, cost_rate, CostConstant::by_all, "reduce_gbs"},
    {"write_bandwidth", &CostModel::write_bandwidth, cost_rate, CostConstant::by_all, "write_gbs"},
    {"copy_bandwidth", &CostModel::copy_bandwidth, cost_rate, CostConstant::by_all, "copy_gbs"},
    {"duplex", &CostModel::duplex, cost_share, CostConstant::by_all, "duplex"},
    {"call", &CostModel::call, cost_time_if_any, CostConstant::in_memory, "call_us", true},
    {"common_share", &CostModel::common_share, cost_multiple, CostConstant::in_memory, "common_share", true},
    {"multicast_share", &CostModel::multicast_share, cost_share, CostConstant::elsewhere, "multicast_share"},
    {"switching", &CostModel::switching, cost_time, CostConstant::by_sharing, "switching_us"},
    {"node_start", &CostModel::node_start, cost_time, CostConstant::by_nodes, "node_start_us"},
    {"cable", &CostModel::cable, cost_rate, CostConstant::by_nodes, "cable_gbs"},
    {"stream", &CostModel::stream, cost_rate, CostConstant::by_nodes, "stream_gbs"},
    {"chunk_start", &CostModel::chunk_start, cost_time, CostConstant::by_others},
    {"passing_share", &CostModel::passing_share, cost_share, CostConstant::by_others},
    {"sharing", &CostModel::sharing, cost_ranks, CostConstant::by_place, "sharing"},
    {"beside_share", &CostModel::beside_share, cost_share, CostConstant::by_place},
};

}  // namespace paceline
