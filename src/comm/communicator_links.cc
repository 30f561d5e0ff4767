// What the links between machines can do: measured once, between the first ranks of the machines, when the first
// communicator is made, so that calls are chosen well where nobody has run `paceline tune`.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "base/index.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "tuning/node_links.h"

namespace paceline {
namespace {

// A machine meets some others, asks each for bytes, and is asked by it. Of several times the least counts: a
// disturbance only adds.
constexpr int meetings = 2;
constexpr std::size_t fewest_bytes = 8;  // there and back
constexpr int fewest_repeats = 10;
constexpr std::size_t most_bytes = 40 << 10;
constexpr int most_repeats = 3;               // the first opens TCP's window
constexpr std::size_t before_most = 8 << 10;  // what a shaped link lets through at once
// Links on which bytes take so little longer than a CPU takes to send them are no narrower than CPUs are.
constexpr double as_good = 1.25;
// With more ranks simulating takes longer than a user waits.
constexpr int most_simulated = 32;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// What a rank has seen of its machine's link; 0: nothing.
struct Seen {
  double rate = 0;   // bytes per us, at the best meeting
  double start = 0;  // us
};

// A short message to the peer and so many bytes back, or the other way round: what it takes, us.
Result<double> ask(Communicator& communicator, int peer, bool asks, std::size_t bytes) {
  std::vector<std::byte> buffer(bytes);
  const auto pass = [&](bool sends, std::size_t count) {
    Request message;
    message.which = sends ? Collective::send : Collective::recv;
    message.send = message.recv = buffer.data();
    message.count = count;
    message.root = peer;
    return communicator.run(message);
  };
  const auto begin = Clock::now();
  PACE_TRY(pass(asks, fewest_bytes));
  PACE_TRY(pass(!asks, bytes));
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

Status meet(Communicator& communicator, int peer, Seen& seen) {
  for (const bool asks : {communicator.rank() < peer, peer < communicator.rank()}) {
    double fewest_us = std::numeric_limits<double>::infinity();
    double most_us = fewest_us;
    for (int repeat = 0; repeat < fewest_repeats; ++repeat) {
      const auto took = ask(communicator, peer, asks, fewest_bytes);
      PACE_TRY(took.status());
      fewest_us = std::min(fewest_us, *took);
    }
    for (int repeat = 0; repeat < most_repeats; ++repeat) {
      PACE_TRY(ask(communicator, peer, asks, before_most).status());
      const auto took = ask(communicator, peer, asks, most_bytes);
      PACE_TRY(took.status());
      most_us = std::min(most_us, *took);
    }
    if (!asks) continue;
    const double fastest_us = most_bytes / fastest_stream;
    // On CPUs with other work a short message takes long, but not in addition to bytes that are under way meanwhile.
    const double bytes_us = most_us - std::min(fewest_us, most_us / 4);
    const bool fast = most_us - fewest_us < as_good * fastest_us;
    seen.rate = std::max(seen.rate, most_bytes / (fast ? fastest_us : bytes_us));
    seen.start = seen.start == 0 ? fewest_us / 2 : std::min(seen.start, fewest_us / 2);
  }
  return {};
}

}  // namespace

Status Communicator::measure_links() {
  const auto& members = session_->members();
  std::unordered_map<std::string_view, std::size_t> machine_of;  // node: its place in `firsts`
  std::vector<int> firsts;
  for (int rank = 0; rank < size(); ++rank)
    if (machine_of.emplace(members[at(rank)].node, firsts.size()).second) firsts.push_back(rank);
  if (firsts.size() < 2) return {};
  const auto here = std::ranges::find(firsts, rank());
  const int node = here == firsts.end() ? -1 : static_cast<int>(here - firsts.begin());
  Seen mine;
  std::vector<Seen> all(firsts.size());
  const auto tell = [&]() -> Status {
    const auto shown = show(mine, [&](std::span<const std::byte> card) { return gather_bytes(card); });
    PACE_TRY(shown.status());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = (*shown)[at(firsts[i])];
    return {};
  };
  for (int round = 0; node >= 0 && round < meetings; ++round)
    if (const int other = opponent(node, static_cast<int>(firsts.size()), round); other >= 0)
      PACE_TRY(meet(*this, firsts[at(other)], mine));
  PACE_TRY(tell());
  std::vector<double> rates(all.size());
  std::ranges::transform(all, rates.begin(), &Seen::rate);
  const std::vector<int> again = second_looks(rates);
  if (std::ranges::any_of(again, [](int other) { return other >= 0; })) {
    if (node >= 0 && again[at(node)] >= 0) PACE_TRY(meet(*this, firsts[at(again[at(node)])], mine));
    PACE_TRY(tell());
  }
  auto links = std::make_shared<NodeLinks>();
  for (int rank = 0; rank < size(); ++rank) links->rates.push_back(all[machine_of.at(members[at(rank)].node)].rate);
  std::vector<double> starts(all.size());
  std::ranges::transform(all, starts.begin(), &Seen::start);
  links->start = median(std::move(starts));
  const auto [slowest, fastest] = std::ranges::minmax(links->rates);
  log(LogLevel::info, rank(), "links between {} machines: {:.3g} to {:.3g} GB/s, a message {:.3g} us", firsts.size(),
      slowest / 1000, fastest / 1000, links->start);
  links_ = std::move(links);
  return {};
}

std::optional<Topology> Communicator::topology_between_nodes() const {
  const auto& members = session_->members();
  NodeLinks links{{}, links_->start};
  for (int i = 0; i < size(); ++i) {
    const int rank = session_ranks_[at(i)];
    for (int before = 0; before < i; ++before)
      if (members[at(session_ranks_[at(before)])].node == members[at(rank)].node) return {};  // they share a link
    links.rates.push_back(links_->rates[at(rank)]);
  }
  if (paths_ != nullptr && paths_->part().ok()) return *paths_->part();
  if (std::ranges::min(links.rates) >= fastest_stream) return {};
  return star(links);
}

Status Communicator::simulate_on_links() {
  if (links_ == nullptr || transport() != "tcp" || size() < 2 || size() > most_simulated) return {};
  const std::optional<Topology> topology = topology_between_nodes();
  if (!topology) return {};
  const CostModel model = cost_model(DataType::float32);
  const auto calls = simulated_calls(size(), paths_.get());
  std::vector<double> times(calls.size());
  for (std::size_t i = at(rank()); i < calls.size(); i += at(size()))
    times[i] = simulated_us(*topology, links_->start, model, calls[i]);
  auto shown = gather_bytes(std::as_bytes(std::span(times)));
  PACE_TRY(shown.status());
  for (std::size_t i = 0; i < times.size(); ++i)
    std::memcpy(&times[i], (*shown)[i % at(size())].data() + i * sizeof(double), sizeof(double));
  const Profile profile{"", "", {simulated_setting(size(), model, times)}};
  simulated_ = Tuned::of(profile, "tcp", size());
  use_profile(profile_);
  return {};
}

}  // namespace paceline
