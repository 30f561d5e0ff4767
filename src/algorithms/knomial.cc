// K-nomial trees: broadcast, reduce, gather, scatter, for any radix k >= 2 and any n.
//
//   k = 2, n = 8:    0 -> 4;   0 -> 2, 4 -> 6;   0 -> 1, 2 -> 3, 4 -> 5, 6 -> 7      positions, the root's is 0
//
// Whoever has the data hands it to k-1 others in each of ceil(log_k n) levels. Reduce and gather go the other way.
// Broadcast and reduce take a long message chunk by chunk through all levels, so that the levels overlap.
//
// With M the message, or one block, and L = ceil(log_k n):
//
//               sends                                     time
//   broadcast   M a level, once for all children          L (ts + M/B), (k-1) times as much without multicast
//   reduce      M                                         L (ts + (k-1)(M/B + M/R))
//   gather      M for each rank in its subtree            L ts + (n-1) M/B
//   scatter     the root (n-1) M, others what is below    (k-1) L ts + (n-1) M/B
//
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005), for k = 2; Chu et al., ICPP
// 2017, for the pipelined broadcast of any k.
#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"
#include "schedule/cables.h"

namespace paceline {
namespace {

int levels(int ranks, int radix) {
  int count = 0;
  for (int reach = 1; reach < ranks; reach *= radix) ++count;
  return count;
}

// The distance between a parent and its first child at the level next to the root.
int widest(int ranks, int radix) {
  int width = 1;
  while (width * radix < ranks) width *= radix;
  return width;
}

// Calls visit(parent, children) for the positions of every parent at the level whose children are `width` apart.
template <class Visit>
void for_parents(int ranks, int radix, int width, Visit visit) {
  std::vector<int> children;
  for (int parent = 0; parent + width < ranks; parent += width * radix) {
    children.clear();
    for (int j = 1; j < radix && parent + j * width < ranks; ++j) children.push_back(parent + j * width);
    visit(parent, children);
  }
}

void broadcast(Schedule& schedule, const std::vector<int>& p, int radix) {
  const int n = schedule.ranks();
  for (const auto [offset, count] : slices(schedule.problem().count, 1, schedule.parameters().chunk)) {
    for (int width = widest(n, radix); width >= 1; width /= radix) {
      for_parents(n, radix, width, [&, offset = offset, count = count](int parent, const std::vector<int>& children) {
        std::vector<Place> to;
        to.reserve(children.size());
        for (const int child : children) to.push_back({p[child], Buffer::output, offset});
        schedule.multicast({p[parent], parent == 0 ? Buffer::input : Buffer::output, offset}, to, count);
      });
      schedule.round();
    }
    schedule.move({p[0], Buffer::input, offset}, {p[0], Buffer::output, offset}, count);
    schedule.round();
  }
}

// What one level of a broadcast asks of a parent of so many children, and of each child.
Load broadcast_parent(const Sizes& m, const CostModel& model, int children) {
  return {.steps = m.chunks,
          .receivers = m.chunks * model.further(children, m.others + 1),
          .sent = model.multicast(m.bytes, children)};
}
Load broadcast_child(const Sizes& m, int siblings) {
  return {.steps = m.chunks, .taken = m.bytes, .common = CostModel::common(m.bytes, siblings)};
}

void reduce(Schedule& schedule, const std::vector<int>& p, int radix) {
  const int n = schedule.ranks();
  const std::size_t longest = std::min(schedule.problem().count, schedule.parameters().chunk);
  std::size_t chunk = 0;
  for (const auto [offset, count] : slices(schedule.problem().count, 1, schedule.parameters().chunk)) {
    for (int width = 1; width < n; width *= radix) {
      // Whoever has a child at the lowest level has folded there already. Two places for the results, as the transport
      // may still read one while the next chunk comes.
      const auto folded = [&, offset = offset](int position) {
        if (position == 0) return Place{p[0], Buffer::output, offset};
        schedule.need_scratch(p[position], 2 * longest);
        return Place{p[position], Buffer::scratch, (chunk % 2) * longest};
      };
      const auto held = [&, offset = offset](int position) {
        const bool parent_below = width > 1 && position + 1 < n;
        return parent_below ? folded(position) : Place{p[position], Buffer::input, offset};
      };
      for_parents(n, radix, width, [&, count = count](int parent, const std::vector<int>& children) {
        std::vector<Place> operands{held(parent)};
        for (const int child : children) operands.push_back(held(child));
        schedule.reduce(by_rank(operands), folded(parent), count);
      });
      schedule.round();
    }
    ++chunk;
  }
}

// And one level of a reduce.
Load reduce_parent(const Sizes& m, int children) {
  return {.steps = m.chunks, .folded = children * m.bytes, .written = m.bytes};
}
Load reduce_child(const Sizes& m) { return {.steps = m.chunks, .sent = m.bytes}; }

// The end of the positions below and including `position`, whose parent has its children `width` apart.
int end_of_subtree(int position, int width, int ranks) { return std::min(position + width, ranks); }

void gather(Schedule& schedule, const std::vector<int>& p, int radix) {
  const int n = schedule.ranks();
  const std::size_t count = schedule.problem().count;
  const auto blocks = [count](int number) { return static_cast<std::size_t>(number) * count; };
  schedule.move({p[0], Buffer::input, 0}, {p[0], Buffer::output, blocks(p[0])}, count);
  for (int width = 1; width < n; width *= radix) {
    for_parents(n, radix, width, [&](int parent, const std::vector<int>& children) {
      // An inner rank collects its subtree in scratch, in the order of positions, its own block first.
      if (parent != 0 && width == 1)
        schedule.move({p[parent], Buffer::input, 0}, {p[parent], Buffer::scratch, 0}, count);
      for (const int child : children) {
        const int end = end_of_subtree(child, width, n);
        const bool alone = end - child == 1;
        const auto from = [&](int position) {
          return alone ? Place{p[child], Buffer::input, 0} : Place{p[child], Buffer::scratch, blocks(position - child)};
        };
        if (parent == 0) {
          for_runs(p, child, end, [&](int first, int length) {
            schedule.move(from(first), {p[0], Buffer::output, blocks(p[first])}, blocks(length));
          });
        } else {
          schedule.need_scratch(p[parent], blocks(end - parent));
          schedule.move(from(child), {p[parent], Buffer::scratch, blocks(child - parent)}, blocks(end - child));
        }
      }
    });
    schedule.round();
  }
}

void scatter(Schedule& schedule, const std::vector<int>& p, int radix) {
  const int n = schedule.ranks();
  const std::size_t count = schedule.problem().count;
  const auto blocks = [count](int number) { return static_cast<std::size_t>(number) * count; };
  for (int width = widest(n, radix); width >= 1; width /= radix) {
    for_parents(n, radix, width, [&](int parent, const std::vector<int>& children) {
      for (const int child : children) {
        const int end = end_of_subtree(child, width, n);
        const bool alone = end - child == 1;
        if (!alone) schedule.need_scratch(p[child], blocks(end - child));
        const auto to = [&](int position) {
          return alone ? Place{p[child], Buffer::output, 0}
                       : Place{p[child], Buffer::scratch, blocks(position - child)};
        };
        if (parent == 0) {
          for_runs(p, child, end, [&](int first, int length) {
            schedule.move({p[0], Buffer::input, blocks(p[first])}, to(first), blocks(length));
          });
        } else {
          schedule.move({p[parent], Buffer::scratch, blocks(child - parent)}, to(child), blocks(end - child));
        }
      }
      // The last that an inner rank does: keep its own block.
      if (parent != 0 && width == 1)
        schedule.move({p[parent], Buffer::scratch, 0}, {p[parent], Buffer::output, 0}, count);
    });
    schedule.round();
  }
  schedule.move({p[0], Buffer::input, blocks(p[0])}, {p[0], Buffer::output, 0}, count);
}

// What one child of a gather or scatter asks of who gives the blocks below it, so many bytes, and of who takes them.
Load gives_blocks(const Sizes& m, double bytes) { return {.steps = m.chunks_of(bytes), .sent = bytes}; }
Load takes_blocks(const Sizes& m, double bytes) { return {.steps = m.chunks_of(bytes), .taken = bytes}; }

// Of two ranks none passes on what it has received.
bool gives_only_inputs(const Problem& problem) {
  return problem.collective == Collective::scatter && problem.ranks == 2;
}

Parameters parameters(const Problem& problem, const CostModel& model) {
  // One multicast serves k-1 children for the price of one where that is so; else the binary tree is the best.
  const int radix = model.multicast_share < 0.5 ? 4 : 2;
  const bool whole = problem.collective == Collective::gather || problem.collective == Collective::scatter;
  const int hops = levels(problem.ranks, radix);
  const bool fans = problem.collective == Collective::broadcast && hops == 1;
  const std::size_t chunk = whole  ? largest_chunk(model)
                            : fans ? fan_chunk(problem.count, problem.ranks, model)
                                   : pipeline_chunk(problem.count, hops, model);
  return {.chunk = chunk, .radix = radix};
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const int n = problem.ranks;
  const int radix = parameters.radix;
  const Collective which = problem.collective;
  const bool in_blocks = which == Collective::gather || which == Collective::scatter;
  const bool up = which == Collective::gather || which == Collective::reduce;
  std::vector<Load> loads(static_cast<std::size_t>(n));
  Cables cables(model, n);
  const auto add = [&](int position, const Load& load) {
    Load& sum = loads[static_cast<std::size_t>(position)];
    sum = sum + load;
  };
  for (int width = 1; width < n; width *= radix) {
    for_parents(n, radix, width, [&](int parent, const std::vector<int>& children) {
      const int number = static_cast<int>(children.size());
      if (which == Collective::broadcast) add(parent, broadcast_parent(m, model, number));
      if (which == Collective::reduce) add(parent, reduce_parent(m, number));
      if (in_blocks && width == 1 && parent != 0) add(parent, {.copied = m.bytes});  // its own block
      for (const int child : children) {
        const int giver = up ? child : parent;
        const int taker = up ? parent : child;
        const double bytes = in_blocks ? (end_of_subtree(child, width, n) - child) * m.bytes : m.bytes;
        cables.move(giver, taker, bytes);
        if (in_blocks) {
          add(giver, gives_blocks(m, bytes));
          add(taker, takes_blocks(m, bytes));
        } else {
          add(child, up ? reduce_child(m) : broadcast_child(m, number));
        }
      }
    });
  }
  if (which != Collective::reduce) add(0, {.copied = m.kept});

  Work work = model.work(loads);
  const double depth = levels(n, radix);
  work.hops = depth;
  work.inside = model.levels_inside(n, radix);
  work.cable = cables.busiest();
  if (up) work.partners = depth * (radix - 2);
  // In a reduce most ranks have given what they have after one turn, and stand in nobody's way.
  const double first_turns = which == Collective::reduce ? 1 : depth;
  work.turns = in_blocks ? depth : first_turns + m.chunks * depth / capacity(n);
  // A chunk passes all levels before the last rank has it, and a leaf copies it out, or in; in gather and scatter the
  // largest subtree is passed on whole.
  const Load leaf = which == Collective::broadcast ? Load{.taken = m.chunk} : Load{.sent = m.chunk};
  work.fill = in_blocks ? Load{.sent = (std::min(widest(n, radix), n - widest(n, radix)) - 1) * m.bytes}
                        : (depth - 1) * Load{.steps = 2, .sent = m.chunk, .taken = m.chunk} + leaf;
  return model.time(work);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const auto p = order_from(schedule, problem.root);
  switch (problem.collective) {
    case Collective::broadcast: return broadcast(schedule, p, schedule.parameters().radix);
    case Collective::reduce: return reduce(schedule, p, schedule.parameters().radix);
    case Collective::gather: return gather(schedule, p, schedule.parameters().radix);
    default: return scatter(schedule, p, schedule.parameters().radix);
  }
}

}  // namespace

Algorithm knomial_row() {
  using enum Collective;
  return {
      .name = "knomial",
      .sentence = "A tree in which whoever has the data hands it to k-1 others at each level.",
      .collectives = these<broadcast, reduce, gather, scatter>,
      .parameters = parameters,
      .cost_of_several = cost,
      .write_for_several = write,
      .has_radix = true,
      .measured = true,
      .gives_only_inputs = gives_only_inputs,
  };
}

}  // namespace paceline
