#include "algorithms/packed_trees.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "base/index.h"
#include "base/wrong.h"

namespace paceline {
namespace {

__extension__ using Wide = __int128;

// When an edge carries its chunk: from `begin` to `end` of a period; chunk c in period c + lag.
struct Turn {
  double begin = 0;
  double end = 0;
  int lag = 0;
};

// A tree's part of the root's data.
struct Share {
  Part part;
  std::vector<Turn> turns;  // of each edge
};

struct Plan {
  std::vector<Share> shares;
  double slack = 0;
  int channels = 1;
  int slots = 1;
  int chunks = 1;
};

struct Message {
  int from = 0;
  int to = 0;  // `from`: a copy
  int channel = 0;
  double begin = 0;  // in periods
  double end = 0;
  Region source;
  Region target;
};

// One step of one rank.
struct Event {
  std::size_t message = 0;
  bool sends = false;
};

Status check(const Problem& problem, const TreePacking& packing) {
  const bool broadcast = problem.collective == Collective::broadcast;
  if (!broadcast && problem.collective != Collective::all_gather)
    return wrong(fmt::format("packed trees are for broadcast and all-gather, not {}", title(problem.collective)));
  if (problem.ranks == 1) return {};
  std::vector<Flow> of_root(at(problem.ranks));
  for (const PackedTree& tree : packing.trees) {
    if (static_cast<int>(tree.edges.size()) != problem.ranks - 1 || tree.root >= problem.ranks)
      return wrong(fmt::format("a tree of {} ranks for a collective of {}", tree.edges.size() + 1, problem.ranks));
    of_root[at(tree.root)] += tree.weight;
  }
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const bool needed = !broadcast || rank == problem.root;
    if (of_root[at(rank)] != (needed ? packing.root_weight : 0))
      return wrong(
          fmt::format("the trees give out {} of {} of rank {}'s data", of_root[at(rank)], packing.root_weight, rank));
  }
  return {};
}

// `slack`: periods between the end of a message and what waits for it. Messages come a little later than the bandwidth
// alone says; without slack that delay would be handed round and grow from period to period.
std::vector<Share> shares_of(const Problem& problem, const TreePacking& packing, double slack) {
  std::vector<Share> shares;
  std::map<std::pair<int, int>, Flow> total;  // weight of each edge's trees
  for (const PackedTree& tree : packing.trees)
    for (const TreeEdge& edge : tree.edges) total[{edge.from, edge.to}] += tree.weight;
  std::map<std::pair<int, int>, Flow> taken;
  std::vector<Flow> begun(at(problem.ranks));  // weight of each root's trees so far
  for (const PackedTree& tree : packing.trees) {
    const auto offset = [&](Flow weight) {
      return static_cast<std::size_t>(static_cast<Wide>(problem.count) * weight / packing.root_weight);
    };
    const std::size_t begin = offset(begun[at(tree.root)]);
    begun[at(tree.root)] += tree.weight;
    Share share{.part = {begin, offset(begun[at(tree.root)]) - begin}, .turns = {}};
    std::vector<Turn> reached(at(problem.ranks));  // the turn that brought it
    for (const TreeEdge& edge : tree.edges) {
      Flow& sum = taken[{edge.from, edge.to}];
      const auto all = static_cast<double>(total[{edge.from, edge.to}]);
      const Turn& brought = reached[at(edge.from)];
      Turn turn{.begin = static_cast<double>(sum) / all, .end = 0, .lag = brought.lag};
      sum += tree.weight;
      turn.end = static_cast<double>(sum) / all;
      if (edge.from != tree.root)
        while (turn.lag + turn.begin < brought.lag + brought.end + slack) ++turn.lag;
      reached[at(edge.to)] = turn;
      share.turns.push_back(turn);
    }
    shares.push_back(std::move(share));
  }
  return shares;
}

// Adds a message cut at the borders of the slots, and further into pieces of at most `chunk` elements.
void add_cut(std::vector<Message>& messages, const Message& whole, int slots, std::size_t chunk) {
  const std::size_t grain = whole.source.count >= 1024 ? 64 : 1;
  const double length = whole.end - whole.begin;
  std::size_t sent = 0;
  for (double begin = whole.begin; begin < whole.end;) {
    const double border = (std::floor(begin * slots + 1e-9) + 1) / slots;
    // Slivers that rounding leaves stay with their neighbour.
    const double end = border > whole.end - 1e-9 ? whole.end : border;
    const double share = static_cast<double>(whole.source.count) * (end - whole.begin) / length;
    const std::size_t upto = end == whole.end
                                 ? whole.source.count
                                 : std::min(whole.source.count, static_cast<std::size_t>(share) / grain * grain);
    while (sent < upto) {
      const std::size_t count = std::min(chunk, upto - sent);
      Message piece = whole;
      piece.begin = begin;
      piece.end = end;
      for (Region* region : {&piece.source, &piece.target}) {
        region->offset += sent;
        region->count = count;
      }
      messages.push_back(piece);
      sent += count;
    }
    begin = end;
  }
}

// The first `upto` chunks' messages.
std::vector<Message> messages_of(const Problem& problem, const TreePacking& packing, const Plan& plan, int upto,
                                 std::size_t chunk) {
  std::vector<Message> messages;
  for (std::size_t i = 0; i < plan.shares.size(); ++i) {
    const PackedTree& tree = packing.trees[i];
    const std::size_t block = problem.collective == Collective::all_gather ? at(tree.root) * problem.count : 0;
    for (int c = 0; c < upto; ++c) {
      const Part piece = part_of(plan.shares[i].part.count, plan.chunks, c);
      if (piece.count == 0) continue;
      const std::size_t offset = plan.shares[i].part.offset + piece.offset;
      const Region input{Buffer::input, offset, piece.count};
      const Region output{Buffer::output, block + offset, piece.count};
      const int channel = static_cast<int>(i) % plan.channels;
      if (!problem.in_place)
        add_cut(messages, {tree.root, tree.root, channel, c + 0.0, c + 1.0, input, output}, 1, chunk);
      for (std::size_t e = 0; e < tree.edges.size(); ++e) {
        const TreeEdge& edge = tree.edges[e];
        const Turn& turn = plan.shares[i].turns[e];
        const double period = c + turn.lag;
        add_cut(messages,
                {edge.from, edge.to, channel, period + turn.begin, period + turn.end,
                 edge.from == tree.root ? input : output, output},
                plan.slots, chunk);
      }
    }
  }
  return messages;
}

// The steps of each rank: those of one order of everything that keeps to the capacity, so that the steps cannot block.
// Counts the messages that had to be taken early.
std::vector<std::vector<Event>> events_of(const std::vector<Message>& messages, int ranks, double slack,
                                          std::size_t& early) {
  struct Moment {
    double time;
    Event event;
  };
  std::vector<Moment> moments;
  moments.reserve(2 * messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    moments.push_back({messages[i].begin, {i, true}});
    if (messages[i].from != messages[i].to) moments.push_back({messages[i].end + 0.9 * slack, {i, false}});
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.event.sends < b.event.sends;
  });
  std::vector<std::vector<Event>> events(at(ranks));
  std::vector<std::array<std::vector<std::size_t>, max_channels>> sent(at(ranks));
  std::vector<bool> taken(messages.size());
  early = 0;
  for (const Moment& moment : moments) {
    const std::size_t i = moment.event.message;
    const Message& message = messages[i];
    if (!moment.event.sends) {
      if (!taken[i]) events[at(message.to)].push_back(moment.event);
      taken[i] = true;
      continue;
    }
    if (message.from != message.to) {
      auto& before = sent[at(message.from)][at(message.channel)];
      if (before.size() >= at(capacity(ranks))) {
        const std::size_t oldest = before[before.size() - at(capacity(ranks))];
        if (!taken[oldest]) {
          events[at(messages[oldest].to)].push_back({oldest, false});
          taken[oldest] = true;
          ++early;
        }
      }
      before.push_back(i);
    }
    events[at(message.from)].push_back(moment.event);
  }
  return events;
}

// With s slots a message lasts at most 1/s of a period.
int chunks_with(const Plan& plan, std::size_t chunk) {
  double most = 0;
  for (const Share& share : plan.shares)
    for (const Turn& turn : share.turns)
      most =
          std::max(most, static_cast<double>(share.part.count) / std::max(1.0, (turn.end - turn.begin) * plan.slots));
  return std::max(1, static_cast<int>(std::ceil(most / static_cast<double>(chunk))));
}

// What part of the messages of a few full periods is taken early.
double early_part(const Problem& problem, const TreePacking& packing, const Plan& plan, std::size_t chunk) {
  int lag = 0;
  for (const Share& share : plan.shares)
    for (const Turn& turn : share.turns) lag = std::max(lag, turn.lag);
  const auto messages = messages_of(problem, packing, plan, std::min(plan.chunks, lag + 3), chunk);
  std::size_t early = 0;
  events_of(messages, problem.ranks, plan.slack, early);
  return static_cast<double>(early) / static_cast<double>(messages.size());
}

// As few slots as let fewest messages be taken early.
Plan plan_of(const Problem& problem, const TreePacking& packing, const TreeTiming& timing, std::size_t chunk) {
  Plan plan{.shares = shares_of(problem, packing, timing.slack), .slack = timing.slack, .channels = timing.channels};
  Plan best;
  double least = 2;
  for (const int slots : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    plan.slots = slots;
    plan.chunks = chunks_with(plan, chunk);
    const double part = early_part(problem, packing, plan, chunk);
    if (part < least) {
      least = part;
      best = plan;
    }
    if (part == 0) break;
  }
  return best;
}

}  // namespace

Status write_packed_trees(Schedule& schedule, const TreePacking& packing, const TreeTiming& timing) {
  const Problem& problem = schedule.problem();
  PACE_TRY(check(problem, packing));
  if (problem.count == 0) return {};
  if (problem.ranks == 1) {
    schedule.move({0, Buffer::input, 0}, {0, Buffer::output, 0}, problem.count);
    return {};
  }
  const Plan plan = plan_of(problem, packing, timing, schedule.parameters().chunk);
  const auto messages = messages_of(problem, packing, plan, plan.chunks, schedule.parameters().chunk);
  std::size_t early = 0;
  const auto events = events_of(messages, problem.ranks, plan.slack, early);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    for (const Event& event : events[at(rank)]) {
      const Message& message = messages[event.message];
      const bool copies = message.from == message.to;
      Step step;
      step.channel = static_cast<std::uint8_t>(message.channel);
      step.action = copies ? Action::copy : event.sends ? Action::send : Action::recv;
      if (event.sends) step.source = message.source;
      if (copies || !event.sends) step.target = message.target;
      const int peer = event.sends ? message.to : message.from;
      schedule.append(rank, step, copies ? std::span<const int>() : std::span(&peer, 1));
    }
  }
  return {};
}

}  // namespace paceline
