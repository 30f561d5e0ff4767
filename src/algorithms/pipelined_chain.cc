// Pipelined chain: broadcast, and reduce the other way round.
//
//   root = p0 -> p1 -> ... -> p(n-1)          p: the schedule's order, rotated so that the root comes first
//
// The message is cut into k chunks. While p(i) forwards chunk c to p(i+1), it receives chunk c+1 from p(i-1), so every
// link works all the time and the last rank has everything after k + n - 2 chunk times. In a reduce the chunks go from
// p(n-1) to p0 and each rank folds its own into what it forwards.
//
// Each rank sends M bytes (the last none).    Time: (k + n - 2)(ts + C/B), C = M/k; best C = sqrt(M ts B / (n - 2)).
// Source: Awan et al., Parallel Computing 85 (2019); the order is what makes it topology-aware
// (topology_chain.cc).
#include "algorithms/pipelined_chain.h"

#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

// In round t, link i (between p(i) and p(i+1)) carries chunk t - i.
void broadcast(Schedule& schedule, const std::vector<int>& p, const std::vector<Part>& chunks) {
  const int links = schedule.ranks() - 1;
  const int k = static_cast<int>(chunks.size());
  for (int t = 0; t < k + links - 1; ++t) {
    for (int i = std::max(0, t - k + 1); i <= std::min(t, links - 1); ++i) {
      const auto [offset, count] = chunks[t - i];
      schedule.move({p[i], i == 0 ? Buffer::input : Buffer::output, offset}, {p[i + 1], Buffer::output, offset}, count);
      if (i == 0) schedule.move({p[0], Buffer::input, offset}, {p[0], Buffer::output, offset}, count);
    }
    schedule.round();
  }
}

void reduce(Schedule& schedule, const std::vector<int>& p, const std::vector<Part>& chunks) {
  const int links = schedule.ranks() - 1;
  const int k = static_cast<int>(chunks.size());
  const std::size_t longest = chunks[0].count;
  for (int i = 1; i < links; ++i) schedule.need_scratch(p[i], 2 * longest);
  // What a rank has folded waits in scratch for the next round; two places, as it folds the next chunk meanwhile.
  const auto folded = [&](int i, int chunk) {
    return i == 0 ? Place{p[0], Buffer::output, chunks[chunk].offset}
                  : Place{p[i], Buffer::scratch, static_cast<std::size_t>(chunk % 2) * longest};
  };
  for (int t = 0; t < k + links - 1; ++t) {
    for (int step = std::max(0, t - k + 1); step <= std::min(t, links - 1); ++step) {
      const int chunk = t - step;
      const int i = links - 1 - step;
      const auto [offset, count] = chunks[chunk];
      const Place from = i + 1 == links ? Place{p[i + 1], Buffer::input, offset} : folded(i + 1, chunk);
      schedule.reduce(by_rank({from, {p[i], Buffer::input, offset}}), folded(i, chunk), count);
    }
    schedule.round();
  }
}

}  // namespace

Parameters pipelined_chain_parameters(const Problem& problem, const CostModel& model) {
  return {.chunk = pipeline_chunk(problem.count, problem.ranks - 1, model)};
}

double pipelined_chain_cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const int inner = m.others - 1;
  const bool folds = problem.collective == Collective::reduce;
  const auto sends = [](double bytes, double steps) { return Load{.steps = steps, .sent = bytes}; };
  // What is folded on its way is passed on, too, but gains nothing by it: measured on 8 ranks that share two CPUs.
  const auto passes_on = [folds](double bytes, double steps) {
    return Load{.steps = steps, .sent = bytes, .passed = folds ? 0 : bytes};
  };
  const auto takes = [folds, others = m.others](double bytes, double steps) {
    if (folds) return Load{.steps = steps, .folded = bytes, .written = bytes};
    return Load{.steps = steps, .taken = bytes, .common = CostModel::common(bytes, others)};
  };
  const Load kept{.copied = folds ? 0 : m.kept};
  const Load ends = model.busier(folds ? takes(m.bytes, m.chunks) : sends(m.bytes, m.chunks) + kept,
                                 folds ? sends(m.bytes, m.chunks) : takes(m.bytes, m.chunks));
  const Load last = (1 - model.duplex) * takes(m.chunk, 1);  // where CPUs copy, after it has been sent
  const Load middle = passes_on(m.bytes, m.chunks) + takes(m.bytes, m.chunks);
  const int crossings = m.others / model.node_ranks;
  const int on_their_way = folds ? 2 : capacity(problem.ranks);  // chunks: what is folded has two places
  return model.time(Work{.hops = static_cast<double>(m.others),
                         .inside = static_cast<double>(m.others - crossings),
                         .turns = m.others + m.chunks / on_their_way,
                         .fill = last + inner * (passes_on(m.chunk, 1) + takes(m.chunk, 1)),
                         .busiest = inner > 0 ? model.busier(middle, ends) : ends,
                         .mean = 1.0 / problem.ranks *
                                 (sends(m.bytes, m.chunks) + inner * passes_on(m.bytes, m.chunks) +
                                  m.others * takes(m.bytes, m.chunks) + kept),
                         .cable = CostModel::by_one_rank(m.bytes + (crossings - 1) * m.chunk)});
}

void write_pipelined_chain(Schedule& schedule, const std::vector<int>& p) {
  const Problem& problem = schedule.problem();
  if (problem.count == 0) return;
  const auto chunks = slices(problem.count, 1, schedule.parameters().chunk);
  (problem.collective == Collective::broadcast ? broadcast : reduce)(schedule, p, chunks);
}

namespace {

void write(Schedule& schedule) { write_pipelined_chain(schedule, order_from(schedule, schedule.problem().root)); }

}  // namespace

Algorithm pipelined_chain_row() {
  using enum Collective;
  return {
      .name = "pipelined_chain",
      .sentence = "Each rank forwards one chunk while it receives the next.",
      .collectives = these<broadcast, reduce>,
      .parameters = pipelined_chain_parameters,
      .cost_of_several = pipelined_chain_cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
