// What the links between machines can do: measured once, between the first ranks of the machines, when the first
// communicator is made, so that calls are chosen well where nobody has run `paceline tune`.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/log.h"
#include "comm/communicator.h"
#include "tuning/node_links.h"

namespace paceline {
namespace {

constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

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

}  // namespace

Status Communicator::ask(int peer, bool asks, std::size_t bytes, double& least_us) {
  std::vector<std::byte> buffer(bytes);
  const auto pass = [&](bool sends, std::size_t count) {
    Request message;
    message.which = sends ? Collective::send : Collective::recv;
    message.send = message.recv = buffer.data();
    message.count = count;
    message.root = peer;
    return run(message);
  };
  const auto begin = Clock::now();
  PACE_TRY(pass(asks, fewest_bytes));
  PACE_TRY(pass(!asks, bytes));
  least_us = std::min(least_us, std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  return {};
}

Status Communicator::measure_links() {
  const auto& members = session_->members();
  std::unordered_set<std::string_view> machines;
  std::vector<int> firsts;
  for (int rank = 0; rank < size(); ++rank)
    if (machines.insert(members[at(rank)].node).second) firsts.push_back(rank);
  if (firsts.size() < 2) return {};
  const auto here = std::ranges::find(firsts, rank());
  const int node = here == firsts.end() ? -1 : static_cast<int>(here - firsts.begin());
  Seen mine;
  for (int round = 0; node >= 0 && round < meetings; ++round)
    if (const int other = opponent(node, static_cast<int>(firsts.size()), round); other >= 0)
      PACE_TRY(meet(firsts[at(other)], mine));
  auto all = tell(firsts, mine);
  PACE_TRY(all.status());
  std::vector<double> rates;
  for (const Seen& seen : *all) rates.push_back(seen.rate);
  const std::vector<int> again = second_looks(rates);
  if (std::ranges::any_of(again, [](int other) { return other >= 0; })) {
    if (node >= 0 && again[at(node)] >= 0) PACE_TRY(meet(firsts[at(again[at(node)])], mine));
    all = tell(firsts, mine);
    PACE_TRY(all.status());
  }
  auto links = std::make_shared<NodeLinks>();
  std::unordered_map<std::string_view, double> rate_of;
  std::vector<double> starts;
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    const Seen& seen = (*all)[i];
    rate_of[members[at(firsts[i])].node] = seen.rate > 0 ? seen.rate : fastest_stream;
    if (seen.start > 0) starts.push_back(seen.start);
  }
  for (int rank = 0; rank < size(); ++rank) links->rates.push_back(rate_of.at(members[at(rank)].node));
  links->start = median(std::move(starts));
  const auto [slowest, fastest] = std::ranges::minmax(links->rates);
  log(LogLevel::info, rank(), "links between {} machines: {:.3g} to {:.3g} GB/s, a message {:.3g} us", firsts.size(),
      slowest / 1000, fastest / 1000, links->start);
  links_ = std::move(links);
  return {};
}

Status Communicator::meet(int peer, Seen& seen) {
  for (const bool asks : {rank() < peer, peer < rank()}) {
    double fewest_us = std::numeric_limits<double>::infinity();
    double most_us = fewest_us;
    for (int repeat = 0; repeat < fewest_repeats; ++repeat) PACE_TRY(ask(peer, asks, fewest_bytes, fewest_us));
    for (int repeat = 0; repeat < most_repeats; ++repeat) {
      double ignored = most_us;
      PACE_TRY(ask(peer, asks, before_most, ignored));
      PACE_TRY(ask(peer, asks, most_bytes, most_us));
    }
    if (!asks) continue;
    const double fastest_us = most_bytes / fastest_stream;
    const double bytes_us = most_us - fewest_us;
    seen.rate = std::max(seen.rate, most_bytes / (bytes_us < as_good * fastest_us ? fastest_us : bytes_us));
    seen.start = seen.start == 0 ? fewest_us / 2 : std::min(seen.start, fewest_us / 2);
  }
  return {};
}

Result<std::vector<Communicator::Seen>> Communicator::tell(std::span<const int> firsts, const Seen& mine) {
  auto shown = gather_bytes(std::as_bytes(std::span(&mine, 1)));
  PACE_TRY(shown.status());
  std::vector<Seen> all(firsts.size());
  for (std::size_t i = 0; i < firsts.size(); ++i) std::memcpy(&all[i], (*shown)[at(firsts[i])].data(), sizeof all[i]);
  return all;
}

Status Communicator::simulate_on_links() {
  if (links_ == nullptr || transport() != "tcp" || size() < 2 || size() > most_simulated) return {};
  const auto& members = session_->members();
  NodeLinks links{{}, links_->start};
  for (int i = 0; i < size(); ++i) {
    const int rank = session_ranks_[at(i)];
    for (int before = 0; before < i; ++before)
      if (members[at(session_ranks_[at(before)])].node == members[at(rank)].node) return {};  // they share a link
    links.rates.push_back(links_->rates[at(rank)]);
  }
  if (std::ranges::min(links.rates) >= fastest_stream) return {};
  const CostModel model = cost_model(DataType::float32);
  const auto calls = simulated_calls(size());
  std::vector<double> times(calls.size());
  for (std::size_t i = at(rank()); i < calls.size(); i += at(size())) times[i] = simulated_us(links, model, calls[i]);
  auto shown = gather_bytes(std::as_bytes(std::span(times)));
  PACE_TRY(shown.status());
  for (std::size_t i = 0; i < times.size(); ++i)
    std::memcpy(&times[i], (*shown)[i % at(size())].data() + i * sizeof(double), sizeof(double));
  const Profile profile{"", "", {simulated_setting(size(), model, times)}};
  simulated_ = Tuned::of(profile, "tcp", size());
  tuned_ = simulated_;
  plans_.clear();
  return {};
}

}  // namespace paceline
