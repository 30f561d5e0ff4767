#include "algorithms/packed_trees.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "algorithms/chunks.h"
#include "algorithms/table.h"
#include "base/index.h"
#include "base/wrong.h"
#include "schedule/cables.h"
#include "topology/paths.h"

namespace paceline {
namespace {

bool over_all_blocks(Collective which) {
  return which == Collective::all_gather || which == Collective::reduce_scatter || which == Collective::all_reduce;
}

// Whether roots copy what they have to their outputs.
bool copies(const Problem& problem) { return !problem.in_place && !reduces(problem.collective); }

// The passes of a collective: whether they go to the roots.
std::vector<bool> passes_of(Collective which) {
  if (which == Collective::all_reduce) return {true, false};
  return {which == Collective::reduce_scatter};
}

Status check(const Problem& problem, const TreePacking& packing) {
  std::vector<Flow> of_root(at(problem.ranks));
  for (const PackedTree& tree : packing.trees) {
    if (static_cast<int>(tree.edges.size()) != problem.ranks - 1 || tree.root >= problem.ranks)
      return wrong(fmt::format("a tree of {} ranks for a collective of {}", tree.edges.size() + 1, problem.ranks));
    of_root[at(tree.root)] += tree.weight;
  }
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const bool needed = over_all_blocks(problem.collective) || rank == problem.root;
    if (of_root[at(rank)] != (needed ? packing.root_weight : 0))
      return wrong(
          fmt::format("the trees carry {} of {} of rank {}'s data", of_root[at(rank)], packing.root_weight, rank));
  }
  return {};
}

Status check(const Problem& problem, std::span<const TreePacking> packings) {
  if (!over_all_blocks(problem.collective) && problem.collective != Collective::broadcast) {
    return wrong(fmt::format("packed trees are for broadcast, all-gather, reduce-scatter and all-reduce, not {}",
                             title(problem.collective)));
  }
  if (problem.ranks == 1) return {};
  const std::vector<bool> inward = passes_of(problem.collective);
  if (packings.size() != inward.size())
    return wrong(fmt::format("{} packings of trees for {}", packings.size(), title(problem.collective)));
  for (std::size_t i = 0; i < packings.size(); ++i) {
    if (packings[i].inward != inward[i]) {
      return wrong(
          fmt::format("trees {} their roots for {}", packings[i].inward ? "to" : "from", title(problem.collective)));
    }
    PACE_TRY(check(problem, packings[i]));
  }
  return {};
}

// By rank: the part of the whole data that its trees carry. The whole is what lies in the longer of input and output.
std::vector<Part> blocks_of(const Problem& problem) {
  std::vector<Part> blocks(at(problem.ranks));
  for (int rank = 0; rank < problem.ranks; ++rank) {
    Part& block = blocks[at(rank)];
    if (problem.collective == Collective::broadcast)
      block = {0, rank == problem.root ? problem.count : 0};
    else if (problem.collective == Collective::all_reduce)
      block = part_of(problem.count, problem.ranks, rank);
    else
      block = {at(rank) * problem.count, problem.count};
  }
  return blocks;
}

// Of the whole data.
std::size_t elements_of(const Problem& problem) {
  const bool in_blocks =
      problem.collective == Collective::all_gather || problem.collective == Collective::reduce_scatter;
  return problem.count * (in_blocks ? at(problem.ranks) : 1);
}

std::vector<bool> without_children(const PackedTree& tree) {
  std::vector<bool> leaf(tree.edges.size() + 1, true);
  for (const TreeEdge& edge : tree.edges) leaf[at(edge.from)] = false;
  return leaf;
}

// The sums that lie in scratch: those of a reduce-scatter at ranks inside its trees. Chunk c of a tree lies in place
// c mod p of the rank's p places for the tree.
class Sums {
 public:
  Sums(const TreePass& pass, int ranks) : pass_(pass), ranks_(ranks), rooms_(pass.shares.size() * at(ranks)) {
    for (std::size_t i = 0; i < pass.shares.size(); ++i) {
      const auto leaf = without_children(pass.packing->trees[i]);
      for (int rank = 0; rank < ranks; ++rank)
        if (!leaf[at(rank)] && rank != pass.packing->trees[i].root)
          room(static_cast<int>(i), rank).left.resize(at(pass.periods()));
    }
  }

  // As many places as this order of the messages needs, where a place is free again once the sum has been taken: so
  // nobody waits for a place that only a later step frees.
  void lay_out(const TreeMessages& messages, std::span<const TreeEvent> order, Schedule& schedule) {
    for (const TreeMessage& message : messages.list)
      if (Room& room = this->room(message.tree, message.from); room.used()) ++room.left[at(message.chunk)];
    for (const TreeEvent& event : order) {
      if (event.sends) continue;
      const TreeMessage& message = messages.list[event.message];
      if (Room& room = this->room(message.tree, message.to); room.used())
        room.places = std::max(room.places, message.chunk - room.oldest + 1);
      if (Room& room = this->room(message.tree, message.from); room.used()) {
        --room.left[at(message.chunk)];
        while (room.oldest < pass_.periods() && room.left[at(room.oldest)] == 0) ++room.oldest;
      }
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      std::size_t elements = 0;
      for (std::size_t i = 0; i < pass_.shares.size(); ++i) {
        Room& room = this->room(static_cast<int>(i), rank);
        room.offset = elements;
        elements += at(room.places) * longest(i);
      }
      schedule.need_scratch(rank, elements);
    }
  }

  [[nodiscard]] Region at_rank(int rank, const TreeMessage& message) {
    const Room& room = this->room(message.tree, rank);
    const auto tree = at(message.tree);
    const std::size_t place = at(message.chunk % room.places) * longest(tree);
    const std::size_t chunk = chunk_of(pass_, tree, message.chunk).offset;
    return {Buffer::scratch, room.offset + place + message.part.offset - chunk, message.part.count};
  }

 private:
  struct Room {
    std::vector<int> left;  // by chunk: messages that carry its sum on and have not been taken; empty: no room needed
    int oldest = 0;         // chunk whose sum has not been taken
    int places = 0;
    std::size_t offset = 0;
    [[nodiscard]] bool used() const { return !left.empty(); }
  };
  Room& room(int tree, int rank) { return rooms_[at(tree) * at(ranks_) + at(rank)]; }
  [[nodiscard]] std::size_t longest(std::size_t tree) const {
    return part_of(pass_.shares[tree].part.count, pass_.chunks, 0).count;
  }

  const TreePass& pass_;
  int ranks_;
  std::vector<Room> rooms_;
};

// Turns messages into steps: says where their data lies.
class Writer {
 public:
  Writer(Schedule& schedule, std::span<const TreePass> passes)
      : schedule_(schedule), problem_(schedule.problem()), blocks_(blocks_of(problem_)), passes_(passes) {
    if (!passes[0].packing->inward) return;
    for (const PackedTree& tree : passes[0].packing->trees) leaves_.push_back(without_children(tree));
    if (problem_.collective == Collective::reduce_scatter) sums_.emplace(passes[0], problem_.ranks);
  }

  void write(const TreeMessages& messages, std::span<const TreeEvent> order) {
    if (sums_) sums_->lay_out(messages, order, schedule_);
    begun_.assign(at(messages.folds), false);
    for (const TreeEvent& event : order) {
      const TreeMessage& message = messages.list[event.message];
      if (message.from == message.to)
        copy(message);
      else if (event.sends)
        send(message);
      else
        take(message);
    }
  }

 private:
  // What all ranks count alike: a block of an all-gather's input or a reduce-scatter's output is the rank's own.
  [[nodiscard]] Region own(Buffer buffer, const TreeMessage& message, int rank) const {
    return {buffer, message.part.offset - blocks_[at(rank)].offset, message.part.count};
  }
  [[nodiscard]] static Region whole(Buffer buffer, const TreeMessage& message) {
    return {buffer, message.part.offset, message.part.count};
  }
  [[nodiscard]] int root(const TreeMessage& message) const {
    return passes_[message.inward ? 0 : passes_.size() - 1].packing->trees[at(message.tree)].root;
  }

  // Where the sum of a message's elements lies at a rank.
  [[nodiscard]] Region sum(const TreeMessage& message, int rank) {
    if (problem_.collective == Collective::all_reduce) return whole(Buffer::output, message);
    if (rank == root(message)) return own(Buffer::output, message, rank);
    return sums_->at_rank(rank, message);
  }

  [[nodiscard]] Region source(const TreeMessage& message) {
    if (message.inward) {
      return leaves_[at(message.tree)][at(message.from)] ? whole(Buffer::input, message) : sum(message, message.from);
    }
    if (problem_.collective == Collective::all_reduce || message.from != root(message))
      return whole(Buffer::output, message);
    return own(Buffer::input, message, message.from);
  }

  void copy(const TreeMessage& message) {
    Step step;
    step.action = Action::copy;
    step.source = source(message);
    step.target = whole(Buffer::output, message);
    append(message, message.from, step, {});
  }

  void send(const TreeMessage& message) {
    Step step;
    step.source = source(message);
    append(message, message.from, step, std::span(&message.to, 1));
  }

  void take(const TreeMessage& message) {
    Step step;
    step.action = message.inward ? Action::recv_reduce : Action::recv;
    step.target = whole(Buffer::output, message);
    if (message.inward) {
      step.own = message.from < message.to ? 1 : 0;
      step.target = sum(message, message.to);
      step.source = begun_[at(message.fold)] ? step.target : whole(Buffer::input, message);
      begun_[at(message.fold)] = true;
    }
    append(message, message.to, step, std::span(&message.from, 1));
  }

  void append(const TreeMessage& message, int rank, Step step, std::span<const int> peers) {
    step.channel = static_cast<std::uint8_t>(message.channel);
    schedule_.append(rank, step, peers);
  }

  Schedule& schedule_;
  const Problem& problem_;
  std::vector<Part> blocks_;
  std::span<const TreePass> passes_;
  std::vector<std::vector<bool>> leaves_;  // of the inward trees
  std::optional<Sums> sums_;
  std::vector<bool> begun_;  // by fold
};

// Each tree as two.
TreePacking halved(TreePacking packing) {
  std::vector<PackedTree> trees;
  for (const PackedTree& tree : packing.trees) trees.insert(trees.end(), 2, tree);
  packing.trees = std::move(trees);
  packing.root_weight *= 2;
  return packing;
}

// The two passes of an all-reduce touch the same data, and channels must not. Where trees of the same number do not
// carry the same, a block stays on one channel.
void channels_by_root(TreePass& pass) {
  for (std::size_t i = 0; i < pass.shares.size(); ++i) pass.shares[i].channel = pass.packing->trees[i].root % 2;
}

// By packings that check() has passed.
void write_checked(Schedule& schedule, std::span<const TreePacking> packings, const TreeTiming& timing) {
  const Problem& problem = schedule.problem();
  if (problem.count == 0) return;
  const std::size_t chunk = schedule.parameters().chunk;
  const std::vector<Part> blocks = blocks_of(problem);
  std::vector<TreePacking> halves;
  if (timing.channels == TreeChannels::halves) {
    for (const TreePacking& packing : packings) halves.push_back(halved(packing));
    packings = halves;
  }
  std::vector<TreePass> passes;
  for (const TreePacking& packing : packings) passes.push_back(plan_pass(packing, blocks, timing, chunk));
  if (timing.channels != TreeChannels::one && !same_chunks(passes.front(), passes.back()))
    for (TreePass& pass : passes) channels_by_root(pass);
  const auto periods = periods_of(passes, timing);
  TreeMessages messages;
  for (std::size_t i = 0; i < passes.size(); ++i) add_messages(messages, passes[i], periods[i], copies(problem), chunk);
  Writer(schedule, passes).write(messages, order_of(messages, problem.ranks));
}

const std::vector<TreePacking>& packings_of(const Problem& problem, Paths& paths) {
  return *paths.trees(problem.collective, problem.root);
}

// Every rank works out all ranks' messages: of more ranks or longer data that takes seconds, and gigabytes.
constexpr int most_ranks = 16;
constexpr std::size_t most_elements = std::size_t{1} << 28;

bool finds(const Problem& problem, Paths& paths) {
  return problem.ranks <= most_ranks && elements_of(problem) <= most_elements &&
         paths.trees(problem.collective, problem.root).ok();
}

Parameters parameters(const Problem& problem, const CostModel& model) {
  if (problem.ranks == 1) return largest_chunks(problem, model);
  const auto& packings = packings_of(problem, *model.paths);
  const std::size_t all = elements_of(problem);
  const std::size_t trees = std::max<std::size_t>(1, packings.front().trees.size());
  // Of 1 GB in 2048 chunks, filling the trees takes 1%.
  const std::size_t chunk = std::max(all / 2048, pipeline_chunk(all / trees, problem.ranks, model));
  return {.chunk = std::min(chunk, largest_chunk(model))};
}

// Each rank's load, and the longest way along a tree.
double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const std::vector<Part> blocks = blocks_of(problem);
  const auto element = static_cast<double>(model.element);
  std::vector<Load> loads(at(problem.ranks));
  if (copies(problem))
    for (int rank = 0; rank < problem.ranks; ++rank)
      loads[at(rank)].copied = static_cast<double>(blocks[at(rank)].count) * element;
  Cables cables(model, problem.ranks);
  double hops = 0;
  for (const TreePacking& packing : packings_of(problem, *parameters.paths)) {
    const auto share_of = [&](const PackedTree& tree) {
      return static_cast<double>(blocks[at(tree.root)].count) * static_cast<double>(tree.weight) /
             static_cast<double>(packing.root_weight);
    };
    double longest = 0;
    for (const PackedTree& tree : packing.trees) longest = std::max(longest, share_of(tree));
    // As many of each tree (tree_turns.h).
    const double chunks = std::ceil(longest / static_cast<double>(parameters.chunk));
    int deepest = 0;
    for (const PackedTree& tree : packing.trees) {
      const double bytes = share_of(tree) * element;
      std::vector<int> depth(at(problem.ranks));
      for (const TreeEdge& edge : tree.edges) {
        deepest = std::max(deepest, depth[at(edge.to)] = depth[at(edge.from)] + 1);
        const int from = packing.inward ? edge.to : edge.from;
        const int to = packing.inward ? edge.from : edge.to;
        cables.move(from, to, bytes);
        Load& giver = loads[at(from)];
        Load& taker = loads[at(to)];
        giver = giver + Load{.steps = chunks, .sent = bytes};
        taker = taker + (packing.inward ? Load{.steps = chunks, .folded = bytes, .written = bytes}
                                        : Load{.steps = chunks, .taken = bytes});
      }
    }
    hops += deepest;
  }
  Work work = model.work(loads);
  work.hops = hops;
  work.turns = hops;
  work.cable = cables.busiest();
  return model.time(work);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  write_checked(schedule, packings_of(problem, *schedule.parameters().paths),
                {.slack = 0.1, .overlaps = problem.collective == Collective::all_reduce});
}

}  // namespace

Status write_packed_trees(Schedule& schedule, std::span<const TreePacking> packings, const TreeTiming& timing) {
  const Problem& problem = schedule.problem();
  PACE_TRY(check(problem, packings));
  if (problem.ranks == 1)
    schedule.move({0, Buffer::input, 0}, {0, Buffer::output, 0}, problem.count);
  else
    write_checked(schedule, packings, timing);
  return {};
}

Algorithm packed_trees_row() {
  using enum Collective;
  return {
      .name = "packed_trees",
      .sentence = "Parts go along trees that together use all the bandwidth of the topology.",
      .collectives = these<broadcast, all_reduce, all_gather, reduce_scatter>,
      .finds = finds,
      .parameters = parameters,
      .cost_of_several = cost,
      .write_for_several = write,
  };
}

}  // namespace paceline
