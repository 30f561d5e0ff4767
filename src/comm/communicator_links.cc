// What the links between machines can do: measured once, between the first ranks of the machines, when the first
// communicator is made, so that calls are chosen well where nobody has run `paceline tune`.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "base/log.h"
#include "comm/communicator.h"
#include "tuning/node_links.h"

namespace paceline {
namespace {

constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

// A machine meets some others, asks each for so many bytes, and is asked by it. The fewest say what a message takes,
// the difference of the others what bytes do, without what goes before them.
constexpr std::size_t asked_bytes[] = {8, 8 << 10, 40 << 10};
constexpr int meetings = 2;
constexpr int repeats = 3;  // the first opens TCP's window
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

Result<double> Communicator::ask(int peer, bool asks, std::size_t bytes) {
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
  PACE_TRY(pass(asks, asked_bytes[0]));
  PACE_TRY(pass(!asks, bytes));
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

Status Communicator::measure_links() {
  const auto& members = session_->members();
  std::unordered_map<std::string_view, int> first_of;  // machine
  std::vector<int> firsts;
  for (int rank = 0; rank < size(); ++rank)
    if (first_of.emplace(members[at(rank)].node, rank).second) firsts.push_back(rank);
  if (firsts.size() < 2) return {};
  auto mine = meet_others(firsts);
  PACE_TRY(mine.status());
  auto shown = gather_bytes(std::as_bytes(std::span(&*mine, 1)));
  PACE_TRY(shown.status());
  auto links = std::make_shared<NodeLinks>();
  std::vector<double> starts;
  for (int rank = 0; rank < size(); ++rank) {
    Seen seen;
    std::memcpy(&seen, (*shown)[at(first_of.at(members[at(rank)].node))].data(), sizeof seen);
    links->rates.push_back(seen.rate > 0 ? seen.rate : fastest_stream);
    if (seen.start > 0) starts.push_back(seen.start);
  }
  if (starts.empty()) return {};
  links->start = median(std::move(starts));
  const auto [slowest, fastest] = std::ranges::minmax(links->rates);
  log(LogLevel::info, rank(), "links between {} machines: {:.3g} to {:.3g} GB/s, a message {:.3g} us", firsts.size(),
      slowest / 1000, fastest / 1000, links->start);
  links_ = std::move(links);
  return {};
}

Result<Communicator::Seen> Communicator::meet_others(std::span<const int> firsts) {
  Seen seen;
  const auto mine = std::ranges::find(firsts, rank());
  for (int round = 0; mine != firsts.end() && round < meetings; ++round) {
    const int other = opponent(static_cast<int>(mine - firsts.begin()), static_cast<int>(firsts.size()), round);
    if (other < 0) continue;
    const int peer = firsts[at(other)];
    for (const bool asks : {rank() < peer, peer < rank()}) {
      double least[std::size(asked_bytes)];
      std::ranges::fill(least, std::numeric_limits<double>::infinity());
      for (int repeat = 0; repeat < repeats; ++repeat)
        for (std::size_t i = 0; i < std::size(asked_bytes); ++i) {
          const auto took = ask(peer, asks, asked_bytes[i]);
          PACE_TRY(took.status());
          least[i] = std::min(least[i], *took);
        }
      if (!asks) continue;
      const auto bytes = static_cast<double>(asked_bytes[2] - asked_bytes[1]);
      const double fastest = bytes / fastest_stream;
      const double took = least[2] - least[1];
      seen.rate = std::max(seen.rate, bytes / (took < as_good * fastest ? fastest : took));
      seen.start = seen.start == 0 ? least[0] / 2 : std::min(seen.start, least[0] / 2);
    }
  }
  return seen;
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
