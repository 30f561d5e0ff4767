// Hierarchical all-gather and reduce-scatter: the ranks that have the same place in their nodes form a rail, on which
// blocks go round a ring of nodes; inside nodes they go directly.
//
// All-gather. In step s every rank sends the next node's the block that began s nodes before, and what it gets it
// multicasts in its node, chunk by chunk: while the rail brings one chunk, the node hands out the one before. Halves of
// the chunks go on channels of their own, so that one half is under way while a rank waits for the other.
//   Each rank sends (nodes-1) M bytes between nodes, M one block, and nodes M inside, once for all.
//   Time: nodes ts + max((n-1) M/B, g (nodes-1) M/B_cable), g ranks a node.
//
// Reduce-scatter, the same backwards. The blocks of a node's ranks start at the next node and end at home; wherever
// they come by, each rank of the rail folds into its own all inputs of its node, in one fold.
//   Each rank sends (nodes-1) M bytes between nodes and (n-nodes) M inside.
//   Time: nodes ts + max((n-1)(M/B + M/R), g (nodes-1) M/B_cable).
//
// With one rank a node these are the rings; with one node the direct algorithms. No byte passes a node's cable that
// does not have to: a node must get the blocks of all others.
// Source: levels as in Traeff, "Efficient allgather for regular SMP-clusters", EuroPVM/MPI 2006.
#include "algorithms/chunks.h"
#include "algorithms/hierarchical.h"
#include "algorithms/order.h"

namespace paceline::hierarchical {
namespace {

// The node `steps` before, around the ring of nodes.
int before(int node, int steps, const Layout& layout) { return (node - steps + layout.nodes) % layout.nodes; }

std::size_t block_of(int rank, const Schedule& schedule) {
  return static_cast<std::size_t>(rank) * schedule.problem().count;
}

// A block's chunks. Of more than one, half go on a second channel: a rank sends on one while it waits on the other.
class Chunks {
 public:
  explicit Chunks(const Schedule& schedule)
      : channels_(schedule.problem().count > schedule.parameters().chunk ? 2 : 1) {
    for (int channel = 0; channel < channels_; ++channel)
      halves_[channel] = part_of(schedule.problem().count, channels_, channel);
    slices_ = slices(halves_[0].count, 1, schedule.parameters().chunk);  // the first half is the longer one
  }
  [[nodiscard]] int channels() const { return channels_; }
  [[nodiscard]] int count() const { return static_cast<int>(slices_.size()); }
  [[nodiscard]] Part operator()(int channel, int chunk) const {
    const Part& half = halves_[channel];
    const auto [offset, count] = slices_[static_cast<std::size_t>(chunk)];
    const std::size_t end = std::min(offset + count, half.count);
    return {half.offset + offset, offset < end ? end - offset : 0};
  }

 private:
  int channels_;
  Part halves_[max_channels];
  std::vector<Part> slices_;
};

// One channel of an all-gather.
class Gathering {
 public:
  Gathering(Schedule& schedule, const Layout& layout, const Chunks& chunks, int channel)
      : schedule_(schedule), layout_(layout), chunks_(chunks), channel_(channel) {}

  // A chunk of what came `step` nodes far on its rail goes on to the next node.
  void pass_on(int node, int local, int step, int chunk) {
    const Piece piece = got(node, local, step, chunk);
    const int next = layout_.rank(schedule_, (node + 1) % layout_.nodes, local);
    schedule_.move(piece.from, {next, Buffer::output, piece.target}, piece.count, channel_);
  }
  // And to the others of its node.
  void hand_out(int node, int local, int step, int chunk) {
    const Piece piece = got(node, local, step, chunk);
    std::vector<Place> to;
    for (int other = 0; other < layout_.ranks; ++other)
      if (step == 0 || other != local)  // its own block it has yet to copy
        to.push_back({layout_.rank(schedule_, node, other), Buffer::output, piece.target});
    schedule_.multicast(piece.from, to, piece.count, channel_);
  }

 private:
  struct Piece {
    Place from;
    std::size_t target;  // in everyone's output
    std::size_t count;
  };
  [[nodiscard]] Piece got(int node, int local, int step, int chunk) const {
    const auto [offset, count] = chunks_(channel_, chunk);
    const int rank = layout_.rank(schedule_, node, local);
    const int owner = layout_.rank(schedule_, before(node, step, layout_), local);
    const std::size_t target = block_of(owner, schedule_) + offset;
    return {step == 0 ? Place{rank, Buffer::input, offset} : Place{rank, Buffer::output, target}, target, count};
  }

  Schedule& schedule_;
  const Layout& layout_;
  const Chunks& chunks_;
  int channel_;
};

}  // namespace

void all_gather(Schedule& schedule, const Layout& layout) {
  const Chunks chunks(schedule);
  const int k = chunks.count();
  const int passing = (layout.nodes - 1) * k;
  // In round s k + c chunk c goes its step s.
  for (int round = 0; round <= std::max(passing, k - 1); ++round) {
    for (int channel = 0; channel < chunks.channels(); ++channel) {
      Gathering gathering(schedule, layout, chunks, channel);
      for (int node = 0; node < layout.nodes; ++node) {
        for (int local = 0; local < layout.ranks; ++local) {
          if (round < passing) gathering.pass_on(node, local, round / k, round % k);
          if (round < k) gathering.hand_out(node, local, 0, round);
          if (round > 0 && round <= passing) gathering.hand_out(node, local, (round - 1) / k + 1, (round - 1) % k);
        }
      }
    }
    schedule.round();
  }
}

void reduce_scatter(Schedule& schedule, const Layout& layout) {
  const Chunks chunks(schedule);
  const std::size_t count = schedule.problem().count;
  // Folds that go on lie in scratch, in two places: one is sent, one folded.
  const auto partial = [&](int step, int node, int local, int block, std::size_t offset) {
    const int rank = layout.rank(schedule, node, local);
    if (layout.ranks == 1 && step == 0) return Place{rank, Buffer::input, block_of(block, schedule) + offset};
    if (step == layout.nodes - 1) return Place{rank, Buffer::output, offset};
    schedule.need_scratch(rank, (layout.nodes > 2 ? 2 : 1) * count);
    return Place{rank, Buffer::scratch, static_cast<std::size_t>(step % 2) * count + offset};
  };
  const auto fold = [&](int step, int node, int local, int channel, int chunk) {
    const auto [offset, length] = chunks(channel, chunk);
    const int block = layout.rank(schedule, before(node, step + 1, layout), local);
    std::vector<Place> operands;
    operands.reserve(static_cast<std::size_t>(layout.ranks) + 1);
    for (int other = 0; other < layout.ranks; ++other)
      operands.push_back({layout.rank(schedule, node, other), Buffer::input, block_of(block, schedule) + offset});
    if (step > 0) operands.push_back(partial(step - 1, before(node, 1, layout), local, block, offset));
    schedule.reduce(by_rank(operands), partial(step, node, local, block, offset), length, channel);
  };
  for (int step = layout.ranks == 1 ? 1 : 0; step < layout.nodes; ++step) {
    for (int chunk = 0; chunk < chunks.count(); ++chunk) {
      for (int channel = 0; channel < chunks.channels(); ++channel)
        for (int node = 0; node < layout.nodes; ++node)
          for (int local = 0; local < layout.ranks; ++local) fold(step, node, local, channel, chunk);
      schedule.round();
    }
  }
}

double all_gather_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                       const Layout& layout) {
  const Sizes m(problem, parameters, model);
  const int passed = layout.nodes - 1;
  const int others = layout.ranks - 1;
  const int handed_out = others > 0 ? layout.nodes : 0;
  const Load load{.steps = (passed + handed_out + m.others) * m.chunks,
                  .receivers = handed_out * m.chunks * model.further(others, problem.ranks),
                  .sent = passed * m.bytes + handed_out * model.multicast(m.bytes, others),
                  .taken = m.others * m.bytes,
                  .copied = m.kept,
                  .common = CostModel::common(passed * m.bytes, layout.nodes > 2 ? 2 : layout.ranks) +
                            CostModel::common(handed_out * others * m.bytes, others)};
  const double inside = others > 0 ? 1 : 0;
  return model.time(Work{.hops = passed + inside,
                         .inside = inside,
                         .turns = passed + inside,
                         .partners = std::max(0.0, others - 1.0),
                         .fill = inside * Load{.steps = 2, .sent = m.chunk, .taken = m.chunk},
                         .busiest = load,
                         .mean = load,
                         .cable = {passed * layout.ranks * m.bytes, passed * m.bytes}});
}

double reduce_scatter_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                           const Layout& layout) {
  const Sizes m(problem, parameters, model);
  const int passed = layout.nodes - 1;
  const int sent = passed + layout.nodes * (layout.ranks - 1);
  const int folds = layout.ranks > 1 ? layout.nodes : passed;
  const Load load{.steps = (sent + folds) * m.chunks,
                  .sent = sent * m.bytes,
                  .folded = m.others * m.bytes,
                  .written = folds * m.bytes};
  const double inside = layout.ranks > 1 ? 1 : 0;
  return model.time(Work{.hops = passed + inside,
                         .inside = inside,
                         .turns = passed + inside,
                         .partners = std::max(0.0, layout.ranks - 2.0),
                         .fill = inside * Load{.steps = 1, .sent = m.chunk},
                         .busiest = load,
                         .mean = load,
                         .cable = {passed * layout.ranks * m.bytes, passed * m.bytes}});
}

}  // namespace paceline::hierarchical
