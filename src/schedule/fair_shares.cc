#include "schedule/fair_shares.h"

#include <algorithm>
#include <cmath>

namespace paceline {

FairShares::FairShares(std::vector<double> capacities) : links_(capacities.size()), peaks_(capacities.size()) {
  for (std::size_t l = 0; l < links_.size(); ++l) links_[l].capacity = capacities[l];
}

void FairShares::touch(int link) {
  if (links_[at(link)].dirty) return;
  links_[at(link)].dirty = true;
  dirty_.push_back(link);
}

int FairShares::add(std::span<const int> links, double bytes, double now) {
  int number = static_cast<int>(flows_.size());
  if (free_.empty()) {
    flows_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[at(number)];
  flow.links = links;
  flow.left = bytes;
  flow.since = now;
  flow.rate = 0;
  flow.alive = true;
  flow.width = links_[at(links[0])].capacity;
  for (const int l : links) flow.width = std::min(flow.width, links_[at(l)].capacity);
  flow.places.clear();
  for (std::size_t i = 0; i < links.size(); ++i) {
    Link& link = links_[at(links[i])];
    flow.places.push_back(static_cast<std::uint32_t>(link.members.size()));
    link.members.push_back({number, static_cast<std::uint32_t>(i)});
    link.wanted += flow.width;
    touch(links[i]);
  }
  fresh_.push_back(number);
  return number;
}

void FairShares::remove(int number) {
  Flow& flow = flows_[at(number)];
  for (std::size_t i = 0; i < flow.links.size(); ++i) {
    Link& link = links_[at(flow.links[i])];
    const std::uint32_t place = flow.places[i];
    link.members[place] = link.members.back();
    flows_[at(link.members[place].flow)].places[link.members[place].place] = place;
    link.members.pop_back();
    // Rounding must not pile up.
    link.wanted = link.members.empty() ? 0 : link.wanted - flow.width;
    touch(flow.links[i]);
  }
  flow.alive = false;
  free_.push_back(number);
}

// Adds a flow to the part.
void FairShares::reach(int number) {
  Flow& flow = flows_[at(number)];
  if (flow.mark == mark_) return;
  flow.mark = mark_;
  part_.push_back(number);
}

void FairShares::settle(double now) {
  changed_.clear();
  ++mark_;
  part_.clear();
  part_links_.clear();
  for (const int number : fresh_)
    if (flows_[at(number)].alive) reach(number);
  fresh_.clear();
  for (const int l : dirty_) {
    Link& link = links_[at(l)];
    link.dirty = false;
    const bool is = contended(link);
    if (is || link.was_contended)
      for (const Member& member : link.members) reach(member.flow);
    link.was_contended = is;
  }
  for (std::size_t i = 0; i < part_.size(); ++i) {
    for (const int l : flows_[at(part_[i])].links) {
      Link& link = links_[at(l)];
      if (link.mark == mark_ || !contended(link)) continue;
      link.mark = mark_;
      part_links_.push_back(l);
      for (const Member& member : link.members) reach(member.flow);
    }
  }
  solve(now);
  for (const int l : dirty_) {
    double sum = 0;
    for (const Member& member : links_[at(l)].members) sum += flows_[at(member.flow)].rate;
    peaks_[at(l)] = std::max(peaks_[at(l)], sum / links_[at(l)].capacity);
  }
  for (const int l : part_links_) {
    double sum = 0;
    for (const Member& member : links_[at(l)].members) sum += flows_[at(member.flow)].rate;
    peaks_[at(l)] = std::max(peaks_[at(l)], sum / links_[at(l)].capacity);
  }
  dirty_.clear();
}

void FairShares::push(Candidate candidate) {
  heap_.push_back(candidate);
  std::push_heap(heap_.begin(), heap_.end(), [](const Candidate& a, const Candidate& b) { return a.share > b.share; });
}

void FairShares::solve(double now) {
  if (part_links_.empty()) {
    for (const int number : part_) fix(number, flows_[at(number)].width, now);
    return;
  }
  heap_.clear();
  ++mark_;  // from here on: flows whose rate is fixed
  for (const int l : part_links_) {
    Link& link = links_[at(l)];
    link.left = link.capacity;
    link.open = static_cast<std::uint32_t>(link.members.size());
    link.mark = mark_;  // it is being solved
    push({link.left / link.open, l});
  }
  std::sort(part_.begin(), part_.end(), [this](int a, int b) {
    const Flow& first = flows_[at(a)];
    const Flow& second = flows_[at(b)];
    return first.width != second.width ? first.width < second.width : a < b;
  });
  const auto fixed = [this](int number) { return flows_[at(number)].mark == mark_; };
  const auto settle_one = [&](int number, double rate) {
    Flow& flow = flows_[at(number)];
    flow.mark = mark_;
    for (const int l : flow.links) {
      Link& link = links_[at(l)];
      if (link.mark != mark_) continue;
      link.left = std::max(0.0, link.left - rate);
      --link.open;
    }
    fix(number, rate, now);
  };
  std::size_t narrowest = 0;  // in part_
  while (!heap_.empty()) {
    const Candidate candidate = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), [](const Candidate& a, const Candidate& b) { return a.share > b.share; });
    heap_.pop_back();
    Link& link = links_[at(candidate.link)];
    if (link.open == 0) continue;
    const double share = link.left / link.open;
    // Shares only grow while flows get their rates.
    if (share > candidate.share * (1 + 1e-12)) {
      push({share, candidate.link});
      continue;
    }
    while (narrowest < part_.size() && fixed(part_[narrowest])) ++narrowest;
    if (narrowest < part_.size() && flows_[at(part_[narrowest])].width <= share) {
      settle_one(part_[narrowest], flows_[at(part_[narrowest])].width);
      push({link.open == 0 ? share : link.left / link.open, candidate.link});
      continue;
    }
    for (const Member& member : link.members)
      if (!fixed(member.flow)) settle_one(member.flow, share);
  }
  for (; narrowest < part_.size(); ++narrowest)
    if (!fixed(part_[narrowest])) settle_one(part_[narrowest], flows_[at(part_[narrowest])].width);
}

void FairShares::fix(int number, double rate, double now) {
  Flow& flow = flows_[at(number)];
  if (std::abs(rate - flow.rate) <= 1e-12 * rate) return;
  flow.left = std::max(0.0, flow.left - flow.rate * (now - flow.since));
  flow.since = now;
  flow.rate = rate;
  flow.finish = now + flow.left / rate;
  changed_.push_back(number);
}

}  // namespace paceline
