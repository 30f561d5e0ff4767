// Hierarchical: inside nodes over their fast links, between nodes with as little as must go there, all of it one
// pipeline.
//
// All-reduce. Of g ranks a node each stands for one part of every chunk; the ranks that stand for the same part form a
// rail across the nodes.
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
// Broadcast. The chain goes from node to node; in each node a second chain starts at the rank that is reached.
// Each rank sends M bytes inside its node, and one of them M bytes to the next node.
// Time: (k + nodes + g - 3)(ts + C/B).
//
// Source: NCCL's trees (Jeaugey, "Massively scale your deep learning training with NCCL 2.4", 2019); levels as in Awan
// et al., Parallel Computing 85 (2019).
#include "algorithms/algorithms.h"
#include "algorithms/chunks.h"
#include "algorithms/double_tree.h"
#include "algorithms/order.h"

namespace paceline::hierarchical {
namespace {

struct Layout {
  explicit Layout(const Problem& problem, int node_ranks)
      : ranks(problem.ranks % node_ranks == 0 ? node_ranks : 1), nodes(problem.ranks / ranks) {}
  int ranks;  // of a node
  int nodes;
};

std::size_t at(int index) { return static_cast<std::size_t>(index); }

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
  [[nodiscard]] int rank(int node, int local) const { return schedule_.in_order(node * layout_.ranks + local); }
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

void broadcast(Schedule& schedule, const Layout& layout) {
  const auto chunks = slices(schedule.problem().count, 1, schedule.parameters().chunk);
  const int k = static_cast<int>(chunks.size());
  int root = 0;
  while (schedule.in_order(root) != schedule.problem().root) ++root;
  const auto rank = [&](int node, int local) {
    return schedule.in_order((root / layout.ranks + node) % layout.nodes * layout.ranks +
                             (root % layout.ranks + local) % layout.ranks);
  };
  // The rank on node i, place j of its chain, has chunk c from round c + i + j on.
  for (int round = 0; round < k + layout.nodes + layout.ranks - 2; ++round) {
    for (int i = 0; i < layout.nodes; ++i) {
      for (int j = 0; j < layout.ranks; ++j) {
        const int chunk = round - i - j;
        if (chunk < 0 || chunk >= k) continue;
        const auto [offset, count] = chunks[at(chunk)];
        const Place here{rank(i, j), i + j == 0 ? Buffer::input : Buffer::output, offset};
        if (j == 0 && i + 1 < layout.nodes) schedule.move(here, {rank(i + 1, 0), Buffer::output, offset}, count);
        if (j + 1 < layout.ranks) schedule.move(here, {rank(i, j + 1), Buffer::output, offset}, count);
        if (i + j == 0) schedule.move(here, {here.rank, Buffer::output, offset}, count);
      }
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
  for (const Tree& tree : trees) {
    for (std::size_t node = 0; node < loads.size(); ++node) {
      Load& load = loads[node];
      const int children = static_cast<int>(tree.children[node].size());
      if (tree.parent[node] >= 0) load = load + Load{.steps = 2 * m.chunks, .sent = m.part, .taken = m.part};
      if (children > 0)
        load =
            load + Load{.steps = 2 * m.chunks, .sent = model.multicast(m.part, children), .folded = children * m.part};
      if (others > 0)
        load = load + Load{.steps = 2 * (others + 1) * m.chunks,
                           .sent = others * m.part + model.multicast(m.part, others),
                           .taken = others * m.part,
                           .folded = others * m.part};
    }
  }
  const double hops = 2 * trees[0].height + (others > 0 ? 2 : 0);
  Work work = model.work(loads);
  work.hops = hops;
  work.turns = hops + m.chunks;
  work.fill = (hops - 1) * Load{.steps = 2, .sent = m.chunk, .taken = m.chunk};
  return model.time(work);
}

double broadcast_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                      const Layout& layout) {
  const Sizes m(problem, parameters, model);
  const auto sends = [](double bytes, double steps) { return Load{.steps = steps, .sent = bytes}; };
  const auto takes = [](double bytes, double steps) { return Load{.steps = steps, .taken = bytes}; };
  std::vector<Load> loads(at(problem.ranks));
  for (int i = 0; i < layout.nodes; ++i) {
    for (int j = 0; j < layout.ranks; ++j) {
      Load& load = loads[at(i * layout.ranks + j)];
      load = i + j == 0 ? Load{.copied = m.kept} : takes(m.bytes, m.chunks);
      if (j == 0 && i + 1 < layout.nodes) load = load + sends(m.bytes, m.chunks);
      if (j + 1 < layout.ranks) load = load + sends(m.bytes, m.chunks);
    }
  }
  const int hops = layout.nodes + layout.ranks - 2;
  Work work = model.work(loads);
  work.hops = hops;
  work.turns = hops + m.chunks / capacity(problem.ranks);
  work.fill = (1 - model.duplex) * takes(m.chunk, 1) + std::max(0, hops - 1) * (sends(m.chunk, 1) + takes(m.chunk, 1));
  return model.time(work);
}

}  // namespace

Parameters parameters(const Problem& problem, const CostModel& model) {
  const Layout layout(problem, std::max(1, model.node_ranks));
  Parameters parameters{.node_ranks = layout.ranks};
  if (problem.collective == Collective::broadcast)
    parameters.chunk = pipeline_chunk(problem.count, layout.nodes + layout.ranks - 2, model);
  else
    parameters.chunk = pipeline_chunk(problem.count / (2 * at(layout.ranks)),
                                      2 * tree_of_two(0, layout.nodes).height + (layout.ranks > 1 ? 2 : 0), model);
  return parameters;
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  if (m.others == 0) return model.time(Load{.copied = m.kept});
  const Layout layout(problem, parameters.node_ranks);
  return problem.collective == Collective::broadcast ? broadcast_cost(problem, parameters, model, layout)
                                                     : all_reduce_cost(problem, parameters, model, layout);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  if (problem.count == 0) return;
  if (problem.ranks == 1) return schedule.move({0, Buffer::input, 0}, {0, Buffer::output, 0}, problem.count);
  const Layout layout(problem, schedule.parameters().node_ranks);
  if (problem.collective == Collective::broadcast)
    broadcast(schedule, layout);
  else
    all_reduce(schedule, layout);
}

}  // namespace paceline::hierarchical
