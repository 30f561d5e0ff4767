#include "algorithms/packed_trees.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace paceline {
namespace {

__extension__ using Wide = __int128;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

Status wrong(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

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

struct Message {
  int from = 0;
  int to = 0;        // `from`: a copy
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

std::vector<Share> shares_of(const Problem& problem, const TreePacking& packing) {
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
      if (turn.begin < brought.end) ++turn.lag;
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

std::vector<Message> messages_of(const Problem& problem, const TreePacking& packing, const std::vector<Share>& shares,
                                 int chunks, int upto, int slots, std::size_t chunk) {
  std::vector<Message> messages;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const PackedTree& tree = packing.trees[i];
    const std::size_t block = problem.collective == Collective::all_gather ? at(tree.root) * problem.count : 0;
    for (int c = 0; c < upto; ++c) {
      const Part piece = part_of(shares[i].part.count, chunks, c);
      if (piece.count == 0) continue;
      const std::size_t offset = shares[i].part.offset + piece.offset;
      const Region input{Buffer::input, offset, piece.count};
      const Region output{Buffer::output, block + offset, piece.count};
      if (!problem.in_place) add_cut(messages, {tree.root, tree.root, c + 0.0, c + 1.0, input, output}, 1, chunk);
      for (std::size_t e = 0; e < tree.edges.size(); ++e) {
        const TreeEdge& edge = tree.edges[e];
        const Turn& turn = shares[i].turns[e];
        const double period = c + turn.lag;
        add_cut(messages,
                {edge.from, edge.to, period + turn.begin, period + turn.end, edge.from == tree.root ? input : output,
                 output},
                slots, chunk);
      }
    }
  }
  return messages;
}

// The steps of each rank: those of one order of everything that keeps to the capacity, so that the steps cannot block.
// Counts the messages that had to be taken early.
std::vector<std::vector<Event>> events_of(const std::vector<Message>& messages, int ranks, std::size_t& early) {
  struct Moment {
    double time;
    Event event;
  };
  std::vector<Moment> moments;
  moments.reserve(2 * messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    moments.push_back({messages[i].begin, {i, true}});
    if (messages[i].from != messages[i].to) moments.push_back({messages[i].end, {i, false}});
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.event.sends < b.event.sends;
  });
  std::vector<std::vector<Event>> events(at(ranks));
  std::vector<std::vector<std::size_t>> sent(at(ranks));
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
      auto& before = sent[at(message.from)];
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

}  // namespace

Status write_packed_trees(Schedule& schedule, const TreePacking& packing) {
  const Problem& problem = schedule.problem();
  PACE_TRY(check(problem, packing));
  if (problem.count == 0) return {};
  if (problem.ranks == 1) {
    schedule.move({0, Buffer::input, 0}, {0, Buffer::output, 0}, problem.count);
    return {};
  }
  const std::vector<Share> shares = shares_of(problem, packing);
  const std::size_t chunk = schedule.parameters().chunk;
  double longest = 0;  // elements of a tree
  int lag = 0;
  for (const Share& share : shares) {
    longest = std::max(longest, static_cast<double>(share.part.count));
    for (const Turn& turn : share.turns) lag = std::max(lag, turn.lag);
  }
  // With s slots a message lasts at most 1/s of a period.
  const auto chunks_with = [&](int slots) {
    double most = 0;
    for (const Share& share : shares)
      for (const Turn& turn : share.turns)
        most = std::max(most, static_cast<double>(share.part.count) / std::max(1.0, (turn.end - turn.begin) * slots));
    return std::max(1, static_cast<int>(std::ceil(most / static_cast<double>(chunk))));
  };
  // As few slots as let no message be taken early, seen over a few full periods.
  int slots = 1;
  double least = 2;
  for (const int tried : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    const int chunks = chunks_with(tried);
    const auto messages = messages_of(problem, packing, shares, chunks, std::min(chunks, lag + 3), tried, chunk);
    std::size_t early = 0;
    events_of(messages, problem.ranks, early);
    const double part = static_cast<double>(early) / static_cast<double>(messages.size());
    if (part < least) {
      least = part;
      slots = tried;
    }
    if (early == 0) break;
  }

  const int chunks = chunks_with(slots);
  const auto messages = messages_of(problem, packing, shares, chunks, chunks, slots, chunk);
  std::size_t early = 0;
  const auto events = events_of(messages, problem.ranks, early);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    for (const Event& event : events[at(rank)]) {
      const Message& message = messages[event.message];
      const bool copies = message.from == message.to;
      Step step;
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
