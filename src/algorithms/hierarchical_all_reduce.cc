// Hierarchical all-reduce: inside nodes directly, between nodes by two trees, all of it one pipeline.
//
// Of g ranks a node each stands for one part of every chunk; the ranks that stand for the same part form a rail across
// the nodes.
//
//   fold     each rank folds its part of all inputs of its node                  chunk c in round c
//   rail     two trees over the nodes fold and broadcast one half each           rounds c+1 .. c+2h
//            (double_tree.h)
//   gather   each rank gives its finished part to the others of its node         as soon as it has it
//
// so that while the rails carry one chunk, the nodes fold the next ones and hand out earlier ones. With one rank a node
// this is the double tree; with one node the two-shot algorithm in chunks.
// Each rank sends 2 M (g-1)/g bytes inside its node, M/g of them once for all, and at most 2 M/g between nodes.
// Time: (2h + 2)(ts + C/B) + max(M (g-1)/(g B_in) inside, 2 M/(g B_out) between), h = floor(log2 nodes).
//
// Source: NCCL's trees (Jeaugey, "Massively scale your deep learning training with NCCL 2.4", 2019).
#include "algorithms/chunks.h"
#include "algorithms/double_tree.h"
#include "algorithms/hierarchical.h"
#include "algorithms/order.h"
#include "base/index.h"
#include "schedule/cables.h"

namespace paceline::hierarchical {
namespace {

// One half of the message, on its channel, over its tree.
class Half {
 public:
  Half(Schedule& schedule, const Layout& layout, int channel)
      : schedule_(schedule),
        layout_(layout),
        channel_(channel),
        tree_(tree_of_two(channel, layout.nodes)),
        half_(part_of(schedule.problem().count, 2, channel)),
        slices_(slices(half_.count, layout.ranks, schedule.parameters().chunk)) {}

  [[nodiscard]] int rounds() const { return static_cast<int>(slices_.size()) + 2 * tree_.height + 1; }

  void fold(int round) {
    if (layout_.ranks == 1) return;
    std::vector<Place> operands;
    for (int node = 0; node < layout_.nodes; ++node) {
      for (int local = 0; local < layout_.ranks; ++local) {
        const Part part = part_at(round, local);
        operands.clear();
        for (int other = 0; other < layout_.ranks; ++other)
          operands.push_back({rank(node, other), Buffer::input, part.offset});
        schedule_.reduce(by_rank(operands), {rank(node, local), Buffer::output, part.offset}, part.count, channel_);
      }
    }
  }

  void rail(int round) {
    for (int node = 0; node < layout_.nodes; ++node) {
      const auto& children = tree_.children[at(node)];
      if (children.empty()) continue;
      const int depth = tree_.depth[at(node)];
      for (int local = 0; local < layout_.ranks; ++local) {
        const int here = rank(node, local);
        const Part up = part_at(round - tree_.height + depth, local);
        std::vector<Place> operands{{here, node_result(true), up.offset}};
        for (const int child : children)
          operands.push_back({rank(child, local), node_result(tree_.children[at(child)].empty()), up.offset});
        schedule_.reduce(by_rank(operands), {here, Buffer::output, up.offset}, up.count, channel_);

        const Part down = part_at(round - tree_.height - 1 - depth, local);
        std::vector<Place> to;
        for (const int child : children) to.push_back({rank(child, local), Buffer::output, down.offset});
        schedule_.multicast({here, Buffer::output, down.offset}, to, down.count, channel_);
      }
    }
  }

  void gather(int round) {
    for (int node = 0; node < layout_.nodes; ++node) {
      for (int local = 0; local < layout_.ranks; ++local) {
        const Part part = part_at(round - tree_.height - 1 - tree_.depth[at(node)], local);
        std::vector<Place> to;
        for (int other = 0; other < layout_.ranks; ++other)
          if (other != local) to.push_back({rank(node, other), Buffer::output, part.offset});
        schedule_.multicast({rank(node, local), Buffer::output, part.offset}, to, part.count, channel_);
      }
    }
  }

 private:
  [[nodiscard]] int rank(int node, int local) const { return layout_.rank(schedule_, node, local); }
  // Where the fold of a node's inputs lies: alone in its node, a rank has nothing to fold.
  [[nodiscard]] Buffer node_result(bool untouched) const {
    return untouched && layout_.ranks == 1 ? Buffer::input : Buffer::output;
  }
  [[nodiscard]] Part part_at(int slice, int local) const {
    if (slice < 0 || slice >= static_cast<int>(slices_.size())) return {};
    const auto [offset, count] = part_of(slices_[at(slice)].count, layout_.ranks, local);
    return {half_.offset + slices_[at(slice)].offset + offset, count};
  }

  Schedule& schedule_;
  const Layout& layout_;
  int channel_;
  Tree tree_;
  Part half_;
  std::vector<Part> slices_;
};

}  // namespace

void all_reduce(Schedule& schedule, const Layout& layout) {
  Half halves[] = {{schedule, layout, 0}, {schedule, layout, 1}};
  for (int round = 0; round < halves[0].rounds(); ++round) {  // the first half is the longer one
    for (Half& half : halves) {
      half.rail(round);
      half.gather(round);
      half.fold(round);
    }
    schedule.round();
  }
}

double all_reduce_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                       const Layout& layout) {
  const Sizes m(problem, parameters, model, 2 * layout.ranks);
  const int others = layout.ranks - 1;
  const Tree trees[] = {tree_of_two(0, layout.nodes), tree_of_two(1, layout.nodes)};
  std::vector<Load> loads(at(layout.nodes));  // of a rank of each node
  Cables cables(model, problem.ranks);
  for (const Tree& tree : trees) {
    for (std::size_t node = 0; node < loads.size(); ++node) {
      Load& load = loads[node];
      for (const int child : tree.children[node]) {
        const int here = static_cast<int>(node) * layout.ranks;
        for (int local = 0; local < layout.ranks; ++local) {
          cables.move(child * layout.ranks + local, here + local, m.part);
          cables.move(here + local, child * layout.ranks + local, m.part);
        }
      }
      load = load + load_of_half(tree, node, m, model, problem.ranks);
      if (others > 0)
        load = load + Load{.steps = 2 * (others + 1) * m.chunks,
                           .receivers = m.chunks * model.further(others, problem.ranks),
                           .sent = others * m.part + model.multicast(m.part, others),
                           .taken = others * m.part,
                           .folded = others * m.part,
                           .written = m.part,
                           .common = CostModel::common(others * m.part, others)};
    }
  }
  const int inside = others > 0 ? 2 : 0;
  const int between = 2 * trees[0].height;
  const double hops = between + inside;
  Work work = model.work(loads);
  work.hops = hops;
  work.inside = inside;
  work.partners = 2 * std::max(0, others - 1);
  work.cable = cables.busiest();
  work.cable.node += std::max(0, between - 1) * layout.ranks * m.chunk;
  work.cable.rank += std::max(0, between - 1) * m.chunk;
  work.turns = hops + m.chunks;
  work.fill = (hops - 1) * Load{.steps = 2, .sent = m.chunk, .taken = m.chunk};
  return model.time(work);
}

}  // namespace paceline::hierarchical
