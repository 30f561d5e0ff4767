#include "algorithms/tree_turns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/index.h"
#include "schedule/schedule.h"

namespace paceline {
namespace {

__extension__ using Wide = __int128;

// What is closer than this, in periods, is rounding.
constexpr double together = 1e-9;

struct Order {
  std::vector<TreeEvent> events;
  std::size_t early = 0;  // messages that had to be taken early
};

using Edge = std::pair<int, int>;

std::map<Edge, Flow> edge_weights(const TreePacking& packing) {
  std::map<Edge, Flow> weights;
  for (const PackedTree& tree : packing.trees)
    for (const TreeEdge& edge : tree.edges) weights[{edge.from, edge.to}] += tree.weight;
  return weights;
}

// Each edge in the first period in which its chunk is there in time. `taken`: what trees before this one have of each
// edge.
std::vector<Turn> outward_turns(const PackedTree& tree, int ranks, const std::map<Edge, Flow>& weights,
                                std::map<Edge, Flow>& taken, double slack) {
  std::vector<Turn> turns;
  std::vector<Turn> reached(at(ranks));  // the turn that brought it
  for (const TreeEdge& edge : tree.edges) {
    Flow& sum = taken[{edge.from, edge.to}];
    const auto all = static_cast<double>(weights.at({edge.from, edge.to}));
    const Turn& brought = reached[at(edge.from)];
    Turn turn{.begin = static_cast<double>(sum) / all, .end = 0, .lag = brought.lag};
    sum += tree.weight;
    turn.end = static_cast<double>(sum) / all;
    if (edge.from != tree.root)
      while (turn.lag + turn.begin < brought.lag + brought.end + slack) ++turn.lag;
    reached[at(edge.to)] = turn;
    turns.push_back(turn);
  }
  return turns;
}

int last_lag(const std::vector<Turn>& turns) {
  int lag = 0;
  for (const Turn& turn : turns) lag = std::max(lag, turn.lag);
  return lag;
}

int last_lag(const TreePass& pass) {
  int lag = 0;
  for (const TreeShare& share : pass.shares) lag = std::max(lag, last_lag(share.turns));
  return lag;
}

void turn_round(std::vector<Turn>& turns) {
  const int last = last_lag(turns);
  for (Turn& turn : turns) turn = {.begin = 1 - turn.end, .end = 1 - turn.begin, .lag = last - turn.lag};
}

std::vector<TreeShare> shares_of(const TreePacking& packing, std::span<const Part> blocks, const TreeTiming& timing) {
  const int ranks = static_cast<int>(blocks.size());
  const auto weights = edge_weights(packing);
  std::map<Edge, Flow> taken;
  std::vector<Flow> begun(at(ranks));  // weight of each root's trees so far
  std::vector<TreeShare> shares;
  for (const PackedTree& tree : packing.trees) {
    const Part& block = blocks[at(tree.root)];
    const auto offset = [&](Flow weight) {
      return static_cast<std::size_t>(static_cast<Wide>(block.count) * weight / packing.root_weight);
    };
    const std::size_t begin = offset(begun[at(tree.root)]);
    begun[at(tree.root)] += tree.weight;
    TreeShare share;
    share.part = {block.offset + begin, offset(begun[at(tree.root)]) - begin};
    share.channel = timing.channels == TreeChannels::one ? 0 : static_cast<int>(shares.size() % 2);
    share.turns = outward_turns(tree, ranks, weights, taken, timing.slack);
    if (packing.inward) turn_round(share.turns);
    shares.push_back(std::move(share));
  }
  return shares;
}

// At the borders of the slots.
std::vector<double> cut(const Turn& turn, int slots) {
  std::vector<double> borders;
  for (double begin = turn.begin; begin < turn.end;) {
    const double border = (std::floor(begin * slots + together) + 1) / slots;
    // Slivers that rounding leaves stay with their neighbour.
    begin = border > turn.end - together ? turn.end : border;
    borders.push_back(begin == turn.end ? 1 : (begin - turn.begin) / (turn.end - turn.begin));
  }
  return borders;
}

// What is folded into the same elements must be cut alike: as where it is cut most.
void cut_alike(std::span<const TreeEdge> edges, std::vector<std::vector<double>>& cuts) {
  std::map<int, std::vector<double>> most;  // by the rank that folds
  for (std::size_t e = 0; e < edges.size(); ++e)
    if (auto& found = most[edges[e].from]; cuts[e].size() > found.size()) found = cuts[e];
  for (std::size_t e = 0; e < edges.size(); ++e) cuts[e] = most[edges[e].from];
}

void cut_at_slots(TreePass& pass) {
  for (std::size_t i = 0; i < pass.shares.size(); ++i) {
    TreeShare& share = pass.shares[i];
    share.cuts.clear();
    for (const Turn& turn : share.turns) share.cuts.push_back(cut(turn, pass.slots));
    if (pass.packing->inward) cut_alike(pass.packing->trees[i].edges, share.cuts);
  }
}

// So many that none of the pieces is longer than `chunk` by much.
int chunks_with(const TreePass& pass, std::size_t chunk) {
  double most = 0;
  for (const TreeShare& share : pass.shares)
    for (const Turn& turn : share.turns)
      most =
          std::max(most, static_cast<double>(share.part.count) / std::max(1.0, (turn.end - turn.begin) * pass.slots));
  return std::max(1, static_cast<int>(std::ceil(most / static_cast<double>(chunk))));
}

// Adds a message cut at the borders, and further into pieces of at most `chunk` elements.
void add_cut(std::vector<TreeMessage>& messages, const TreeMessage& whole, std::span<const double> borders,
             std::size_t chunk) {
  const std::size_t grain = whole.part.count >= 1024 ? 64 : 1;
  const double length = whole.end - whole.begin;
  double begin = whole.begin;
  std::size_t sent = 0;
  for (const double border : borders) {
    const double end = border == 1 ? whole.end : whole.begin + border * length;
    const auto share = static_cast<std::size_t>(static_cast<double>(whole.part.count) * border);
    const std::size_t upto = border == 1 ? whole.part.count : std::min(whole.part.count, share / grain * grain);
    while (sent < upto) {
      TreeMessage piece = whole;
      piece.begin = begin;
      piece.end = end;
      piece.part = {whole.part.offset + sent, std::min(chunk, upto - sent)};
      messages.push_back(piece);
      sent += piece.part.count;
    }
    begin = end;
  }
}

// Numbers the folds of one chunk's messages, from `begin` on: the k-th piece of each edge to a rank belongs to the
// same.
void number_folds(TreeMessages& messages, std::size_t begin, int ranks) {
  std::vector<std::vector<int>> folds(at(ranks));
  std::size_t piece = 0;
  for (std::size_t i = begin; i < messages.list.size(); ++i) {
    TreeMessage& message = messages.list[i];
    const bool same_edge = i > begin && messages.list[i - 1].from == message.from;
    piece = same_edge ? piece + 1 : 0;
    auto& of_rank = folds[at(message.to)];
    if (piece == of_rank.size()) of_rank.push_back(messages.folds++);
    message.fold = of_rank[piece];
  }
}

void add_chunk(TreeMessages& messages, const TreePass& pass, std::size_t tree_number, int c, const TreePeriods& periods,
               bool copies, std::size_t chunk) {
  const PackedTree& tree = pass.packing->trees[tree_number];
  const TreeShare& share = pass.shares[tree_number];
  const Part piece = chunk_of(pass, tree_number, c);
  if (piece.count == 0) return;
  const bool inward = pass.packing->inward;
  TreeMessage message{.from = tree.root, .to = tree.root, .inward = inward};
  message.tree = static_cast<int>(tree_number);
  message.chunk = c;
  message.channel = share.channel;
  message.wait = pass.wait * periods.width;
  message.begin = periods.first + c;
  message.end = periods.first + c + 1;
  message.part = piece;
  if (copies) add_cut(messages.list, message, std::array{1.0}, chunk);
  const std::size_t begin = messages.list.size();
  for (std::size_t e = 0; e < tree.edges.size(); ++e) {
    const TreeEdge& edge = tree.edges[e];
    const Turn& turn = share.turns[e];
    message.from = inward ? edge.to : edge.from;
    message.to = inward ? edge.from : edge.to;
    const double period = periods.first + c + turn.lag;
    message.begin = period + periods.begin + turn.begin * periods.width;
    message.end = period + periods.begin + turn.end * periods.width;
    add_cut(messages.list, message, share.cuts[e], chunk);
  }
  if (inward) number_folds(messages, begin, static_cast<int>(tree.edges.size()) + 1);
}

Order ordered(const TreeMessages& messages, int ranks) {
  struct Moment {
    double time;
    TreeEvent event;
  };
  std::vector<Moment> moments;
  moments.reserve(2 * messages.list.size());
  for (std::size_t i = 0; i < messages.list.size(); ++i) {
    const TreeMessage& message = messages.list[i];
    moments.push_back({message.begin, {i, true}});
    if (message.from != message.to) moments.push_back({message.end + message.wait - together, {i, false}});
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.event.sends < b.event.sends;
  });
  std::vector<std::array<std::vector<std::size_t>, max_channels>> sent(at(ranks));
  std::vector<bool> taken(messages.list.size());
  Order order;
  order.events.reserve(moments.size());
  for (const Moment& moment : moments) {
    const std::size_t i = moment.event.message;
    const TreeMessage& message = messages.list[i];
    if (!moment.event.sends) {
      if (!taken[i]) order.events.push_back(moment.event);
      taken[i] = true;
      continue;
    }
    if (message.from != message.to) {
      auto& before = sent[at(message.from)][at(message.channel)];
      if (before.size() >= at(capacity(ranks))) {
        const std::size_t oldest = before[before.size() - at(capacity(ranks))];
        if (!taken[oldest]) {
          order.events.push_back({oldest, false});
          taken[oldest] = true;
          ++order.early;
        }
      }
      before.push_back(i);
    }
    order.events.push_back(moment.event);
  }
  return order;
}

// What part of the messages of a few full periods is taken early.
double early_part(const TreePass& pass, int ranks, std::size_t chunk) {
  const int upto = std::min(pass.periods(), last_lag(pass) + 3);
  TreeMessages messages;
  for (std::size_t i = 0; i < pass.shares.size(); ++i)
    for (int c = 0; c < upto; ++c) add_chunk(messages, pass, i, c, {}, false, chunk);
  if (messages.list.empty()) return 0;
  return static_cast<double>(ordered(messages, ranks).early) / static_cast<double>(messages.list.size());
}

}  // namespace

Part chunk_of(const TreePass& pass, std::size_t tree, int chunk) {
  const Part& whole = pass.shares[tree].part;
  const bool late = pass.halves && tree % 2 == 1;
  const auto begin = [&](int c) {
    if (late && c > 0) {
      const Part before = part_of(whole.count, pass.chunks, c - 1);
      return before.offset + before.count / 2;
    }
    return c < pass.chunks ? part_of(whole.count, pass.chunks, c).offset : whole.count;
  };
  const std::size_t end = chunk + 1 < pass.periods() ? begin(chunk + 1) : whole.count;
  return {whole.offset + begin(chunk), end - begin(chunk)};
}

TreePass plan_pass(const TreePacking& packing, std::span<const Part> blocks, const TreeTiming& timing,
                   std::size_t chunk) {
  TreePass pass{.packing = &packing, .shares = shares_of(packing, blocks, timing)};
  pass.halves = timing.channels == TreeChannels::halves;
  pass.wait = 0.9 * timing.slack;  // what waits for a message comes after it
  TreePass best;
  double least = 2;
  for (const int slots : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    pass.slots = slots;
    pass.chunks = chunks_with(pass, chunk);
    cut_at_slots(pass);
    const double part = early_part(pass, static_cast<int>(blocks.size()), chunk);
    if (part < least) {
      least = part;
      best = pass;
    }
    if (part == 0) break;
  }
  return best;
}

bool same_chunks(const TreePass& a, const TreePass& b) {
  const auto same = [](const TreeShare& one, const TreeShare& other) {
    return one.part.offset == other.part.offset && one.part.count == other.part.count;
  };
  return a.chunks == b.chunks && std::ranges::equal(a.shares, b.shares, same);
}

std::vector<TreePeriods> periods_of(std::span<const TreePass> passes, const TreeTiming& timing) {
  const bool overlap = timing.overlaps && passes.size() > 1 && same_chunks(passes.front(), passes.back());
  const double width = overlap ? 1.0 / static_cast<double>(passes.size()) : 1;
  std::vector<TreePeriods> periods;
  double first = 0;
  for (const TreePass& pass : passes) {
    periods.push_back({first, overlap ? static_cast<double>(periods.size()) * width : 0, width});
    // A chunk that begins its turns in one period ends them, and has been taken, `last_lag` periods and the slack
    // later.
    first += last_lag(pass) + std::ceil(timing.slack) + (overlap ? 0 : pass.periods());
  }
  return periods;
}

void add_messages(TreeMessages& messages, const TreePass& pass, const TreePeriods& periods, bool copies,
                  std::size_t chunk) {
  for (std::size_t i = 0; i < pass.shares.size(); ++i)
    for (int c = 0; c < pass.periods(); ++c) add_chunk(messages, pass, i, c, periods, copies, chunk);
}

std::vector<TreeEvent> order_of(const TreeMessages& messages, int ranks) { return ordered(messages, ranks).events; }

}  // namespace paceline
