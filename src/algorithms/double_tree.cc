// Double binary tree all-reduce: two trees at once, each reducing and then broadcasting one half of the message.
//
// A rank in the middle of a tree receives from two children and sends to one parent; a leaf only sends. With two trees
// in which leaves and inner ranks change places (double_tree.h), every rank does both, and all links work. Each tree
// has its own channel, and its half goes chunk by chunk: while chunk c goes down, chunk c + height comes up.
//
// Each rank sends at most 2 M bytes (with a multicast to both children 3/2 M).
// Time: 2 h (ts + C/B) + 2 M/B + M/R, h = floor(log2 n).
// Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
// Computing 35 (2009).
#include "algorithms/double_tree.h"

#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"
#include "schedule/cables.h"

namespace paceline {
namespace {

// Of position 1..n in tree 0; 0 for the root's.
int parent_of(int position, int ranks) {
  const int bit = position & -position;
  const int above = (position ^ bit) | (bit << 1);
  return above <= ranks ? above : position ^ bit;
}

}  // namespace

Tree tree_of_two(int which, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  Tree tree{
      .parent = std::vector<int>(n, -1), .children = std::vector<std::vector<int>>(n), .depth = std::vector<int>(n, 0)};
  // Where a position of tree 0 is in this tree, counted from 0.
  const auto here = [&](int position) {
    if (which == 0) return position - 1;
    return ranks % 2 == 0 ? ranks - position : position % ranks;
  };
  for (int position = 1; position <= ranks; ++position) {
    if (const int parent = parent_of(position, ranks); parent > 0) {
      tree.parent[static_cast<std::size_t>(here(position))] = here(parent);
      tree.children[static_cast<std::size_t>(here(parent))].push_back(here(position));
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (int at = tree.parent[i]; at >= 0; at = tree.parent[static_cast<std::size_t>(at)]) ++tree.depth[i];
    tree.height = std::max(tree.height, tree.depth[i]);
  }
  return tree;
}

Load load_of_half(const Tree& tree, std::size_t position, const Sizes& m, const CostModel& model, int ranks) {
  Load load;
  if (const int parent = tree.parent[position]; parent >= 0) {
    const auto siblings = tree.children[static_cast<std::size_t>(parent)].size();
    load = load + Load{.steps = 2 * m.chunks,
                       .sent = m.part,
                       .taken = m.part,
                       .common = CostModel::common(m.part, static_cast<int>(siblings))};
  }
  const int children = static_cast<int>(tree.children[position].size());
  if (children == 0) return load;
  return load + Load{.steps = 2 * m.chunks,
                     .receivers = m.chunks * model.further(children, ranks),
                     .sent = model.multicast(m.part, children),
                     .folded = children * m.part,
                     .written = m.part};
}

namespace {

Parameters parameters(const Problem& problem, const CostModel& model) {
  return {.chunk = pipeline_chunk(problem.count / 2, 2 * tree_of_two(0, problem.ranks).height, model)};
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model, 2);
  const Tree trees[] = {tree_of_two(0, problem.ranks), tree_of_two(1, problem.ranks)};
  std::vector<Load> loads(static_cast<std::size_t>(problem.ranks));
  Cables cables(model, problem.ranks);
  for (const Tree& tree : trees) {
    for (std::size_t position = 0; position < loads.size(); ++position) {
      for (const int child : tree.children[position]) {
        cables.move(child, static_cast<int>(position), m.part);
        cables.move(static_cast<int>(position), child, m.part);
      }
      loads[position] = loads[position] + load_of_half(tree, position, m, model, problem.ranks);
    }
  }
  const double hops = 2 * trees[0].height;
  Work work = model.work(loads);
  work.hops = hops;
  work.inside = 2 * std::min(model.levels_inside(problem.ranks), trees[0].height);
  work.cable = cables.busiest();
  const double crossing = std::max(0.0, work.hops - work.inside - 1) * m.chunk;  // filling
  work.cable = {work.cable.node + crossing, work.cable.rank + crossing};
  work.turns = hops + m.chunks;
  work.fill = (hops - 1) * Load{.steps = 2, .sent = m.chunk, .taken = m.chunk};
  return model.time(work);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const int n = problem.ranks;
  const Tree trees[] = {tree_of_two(0, n), tree_of_two(1, n)};
  const Part halves[] = {part_of(problem.count, 2, 0), part_of(problem.count, 2, 1)};
  const auto chunks = slices(halves[0].count, 1, schedule.parameters().chunk);  // the first half is the longer one
  const int k = static_cast<int>(chunks.size());

  // In round t a rank at depth d has folded chunk t - (height - d - 1) and passes down chunk t - height - d.
  for (int t = 0; t < k + trees[0].height * 2; ++t) {
    for (int channel = 0; channel < 2; ++channel) {
      const Tree& tree = trees[channel];
      for (int position = 0; position < n; ++position) {
        const auto& children = tree.children[static_cast<std::size_t>(position)];
        if (children.empty()) continue;
        const int depth = tree.depth[static_cast<std::size_t>(position)];
        const auto part = [&](int chunk) {
          if (chunk < 0 || chunk >= k) return Part{};
          const auto [offset, count] = chunks[static_cast<std::size_t>(chunk)];
          const std::size_t end = std::min(offset + count, halves[channel].count);
          return Part{halves[channel].offset + offset, offset < end ? end - offset : 0};
        };

        const Part up = part(t - (tree.height - depth - 1));
        const int here = schedule.in_order(position);
        std::vector<Place> operands{{here, Buffer::input, up.offset}};
        for (const int child : children) {
          const bool leaf = tree.children[static_cast<std::size_t>(child)].empty();
          operands.push_back({schedule.in_order(child), leaf ? Buffer::input : Buffer::output, up.offset});
        }
        schedule.reduce(by_rank(operands), {here, Buffer::output, up.offset}, up.count, channel);

        const Part down = part(t - tree.height - depth);
        std::vector<Place> to;
        for (const int child : children) to.push_back({schedule.in_order(child), Buffer::output, down.offset});
        schedule.multicast({here, Buffer::output, down.offset}, to, down.count, channel);
      }
    }
    schedule.round();
  }
}

}  // namespace

Algorithm double_tree_row() {
  using enum Collective;
  return {
      .name = "double_tree",
      .sentence = "Two trees fold and broadcast one half each; who is a leaf in one is inner in the other.",
      .collectives = these<all_reduce>,
      .parameters = parameters,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
