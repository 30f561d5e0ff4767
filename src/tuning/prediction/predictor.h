// One prediction on a topology: what prediction.cc asks for each size, and what gathers its answer. The code is in
// three files: simulated schedules of the table (predictor.cc), what comes from the topology (predictor_topology.cc),
// formulas and sources (prediction.cc).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "algorithms/table.h"
#include "base/index.h"
#include "topology/paths.h"
#include "topology/way_finder.h"
#include "tuning/prediction/prediction.h"
#include "tuning/prediction/step_limits.h"

namespace paceline {

// Whether the sizes of `paceline bench` are of all ranks' parts together, of which a call's count is one.
bool parts_count(Collective which);
// A size of the question as a call on so many ranks.
Problem problem_of(const Question& question, int ranks, std::size_t bytes);
Prediction row_of(const Question& question, const Problem& problem, std::string_view algorithm, double time);

// Names of the table's algorithms that serve the problem, but those that go by a topology.
std::vector<std::string_view> names_that_serve(const Problem& problem);
// An error that lists those that there are.
Status no_algorithm(const Question& question, const Problem& problem, const std::vector<std::string_view>& names);

class Predictor {
 public:
  // Of NVSwitches that are alike the topology has one. The question must outlive it.
  Predictor(Topology topology, const Question& question);

  Result<Answer> answer();

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(question_.gpus.size()); }
  [[nodiscard]] bool asked(std::string_view name) const {
    return question_.algorithm == name || (question_.algorithm == "all" && !question_.in_detail);
  }
  [[nodiscard]] bool by_name(std::string_view name) const { return question_.algorithm == name; }
  // Elements of the longest chunk, if the question says it.
  [[nodiscard]] std::optional<std::size_t> asked_chunk() const {
    if (question_.chunk_bytes == 0) return std::nullopt;
    return std::max<std::size_t>(1, question_.chunk_bytes / question_.element_bytes);
  }

  // What is predicted beside the table of algorithms.
  struct Further {
    std::string_view name;
    bool (*serves)(const Problem& problem);
    Status (Predictor::*add)(const Problem& problem);
    bool by_name_alone;  // else also where all are asked for
  };
  static std::span<const Further> further();

  Status add_size(const Problem& problem);
  Status add_table(const Problem& problem);
  Status add_row(const Algorithm& algorithm, std::string_view name, const Problem& problem, Parameters parameters);
  Status add_chain(const Problem& problem);
  Status add_trees(const Problem& problem);
  Status add_rings(const Problem& problem);
  void add_formula(std::string_view name, const Problem& problem, double time);
  Status add_multicast(const Problem& problem);
  Status add_reduction_server(const Problem& problem);
  Status add_sources(const Problem& problem);
  [[nodiscard]] std::vector<std::string_view> names(const Problem& problem) const;
  void leave_out(std::string_view name, std::string_view reason);
  Status unless_unsupported(std::string_view name, const Status& status);
  bool is_left_out(std::string_view name, std::string_view reason, std::string_view advice = {});
  [[nodiscard]] WayFinder in_whole(WayFinder& of_part) const;
  Status run(WayFinder& finder, std::vector<Traffic> traffic, const Problem& problem, std::string_view name);
  // GB/s; of a straggler what it carries.
  [[nodiscard]] double bandwidth_of(const Topology& topology, std::size_t link) const;
  [[nodiscard]] std::vector<LinkLoad> loads_of(const Topology& topology, const Simulation& result) const;
  void note(const Topology& topology, Simulation result, std::vector<Traffic> traffic, const Problem& problem,
            std::string_view name, bool whole);

  Topology topology_;
  const Question& question_;
  WayFinder finder_;
  WayFinder folded_;
  int period_ = 0;
  CostModel model_;  // with the ranks' paths
  Efforts efforts_;
  Answer answer_;
};

}  // namespace paceline
