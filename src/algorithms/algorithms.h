// The functions of every row of the table (table.h); cost() and write() are for two ranks or more. parameters() is
// declared where an algorithm needs more than largest_chunks() of chunks.h.
#pragma once

#include "schedule/cost.h"
#include "schedule/schedule.h"

namespace paceline {

namespace direct {
bool gives_only_inputs(const Problem& problem);
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace direct

namespace fan_out {
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace fan_out

namespace pipelined_chain {
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace pipelined_chain

namespace knomial {
bool gives_only_inputs(const Problem& problem);
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace knomial

namespace one_shot {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace one_shot

namespace two_shot {
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace two_shot

namespace ring {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace ring

namespace recursive_doubling {
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace recursive_doubling

namespace chain {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace chain

namespace scatter_ring {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace scatter_ring

namespace scatter_doubling {
bool applies(const Problem& problem);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace scatter_doubling

namespace recursive_halving {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace recursive_halving

namespace rabenseifner {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace rabenseifner

namespace double_tree {
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace double_tree

namespace hierarchical {
Parameters parameters(const Problem& problem, const CostModel& model);
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace hierarchical

namespace bruck {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace bruck

namespace pairwise {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace pairwise

namespace dissemination {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace dissemination

namespace central {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace central

namespace fan {
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model);
void write(Schedule& schedule);
}  // namespace fan

}  // namespace paceline
