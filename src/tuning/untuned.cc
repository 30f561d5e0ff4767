#include "tuning/untuned.h"

#include <algorithm>
#include <cmath>

#include "tuning/node_links.h"

namespace paceline {
namespace {

// CostModel::passing_share of two ranks with a CPU each: a byte of their all-reduces costs a fifth less in two steps
// than in one (Xeon and EPYC); with what others cost, those of 50 to 110 KB would go in one.
constexpr double passing_share_of_two = 0.3;

// Between nodes whose links were not measured: us of a short message, and bytes per us of a node's cable.
constexpr double usual_start = 20;
constexpr double usual_cable = 3000;

// CostModel::switching: with ranks at home some of a call's steps are between two on one CPU, who go on at once.
double switching_of(double sharing) { return (sharing <= 2 ? 0.75 : 2.0) * sharing; }

void share_cpus(CostModel& model, const Surroundings& where) {
  model.switching = switching_of(where.sharing);
  model.common_share = 0;  // ranks on one CPU have one cache
  model.passing_share = CostModel::passing_share_of(where.sharing);
  if (where.sharing <= 2) model.homes = static_cast<int>(std::lround(where.ranks / where.sharing));
}

void lie_on_nodes(CostModel& model, const Surroundings& where) {
  const double stream = where.slowest ? std::min(fastest_stream, where.slowest->rate) : fastest_stream;
  const bool link_is_slower = stream < fastest_stream;  // it is what is waited for, not the CPU
  model.homes = 0;
  model.start = model.chunk_start = where.slowest ? where.slowest->start : usual_start;
  model.passing_share = 1;
  model.common_share = 0;
  if (where.node_ranks > 1) {
    model.node_ranks = where.node_ranks;
    model.order = where.order;
    model.cable = link_is_slower ? std::min(usual_cable, stream) : usual_cable;
    model.stream = stream;
  } else {
    model.bandwidth = stream;
    model.multicast_share = 1;
    if (link_is_slower) model.duplex = 1;
  }
}

}  // namespace

CostModel untuned_model(const Surroundings& where) {
  CostModel model;
  model.element = 1;
  model.largest_chunk = where.largest_message;
  model.sharing = where.sharing;
  if (where.ranks == 2) model.passing_share = passing_share_of_two;
  if (where.sharing > 1) share_cpus(model, where);
  if (where.several_nodes) lie_on_nodes(model, where);
  return model;
}

}  // namespace paceline
