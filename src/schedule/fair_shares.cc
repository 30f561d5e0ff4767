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

// Adds a flow to the part that is solved.
void FairShares::reach(int number) {
  Flow& flow = flows_[at(number)];
  if (flow.mark == mark_) return;
  flow.mark = mark_;
  flow.next = flow.rate;
  part_.push_back(number);
  for (const int l : flow.links) {
    Link& link = links_[at(l)];
    if (link.mark == mark_ || !contended(link)) continue;
    link.mark = mark_;
    part_links_.push_back(l);
  }
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
  do solve();
  while (extend());
  for (const int number : part_) give(number, flows_[at(number)].next, now);
  const auto note_peak = [&](int l) {
    double sum = 0;
    for (const Member& member : links_[at(l)].members) sum += flows_[at(member.flow)].rate;
    peaks_[at(l)] = std::max(peaks_[at(l)], sum / links_[at(l)].capacity);
  };
  for (const int l : dirty_) note_peak(l);
  for (const int l : part_links_) note_peak(l);
  dirty_.clear();
}

void FairShares::push(Candidate candidate) {
  heap_.push_back(candidate);
  std::push_heap(heap_.begin(), heap_.end(), [](const Candidate& a, const Candidate& b) { return a.share > b.share; });
}

// The part's rates, with those of all other flows as they are.
void FairShares::solve() {
  ++round_;
  heap_.clear();
  for (const int number : part_) flows_[at(number)].bottleneck = -1;
  if (part_links_.empty()) {
    for (const int number : part_) flows_[at(number)].next = flows_[at(number)].width;
    return;
  }
  for (const int l : part_links_) {
    Link& link = links_[at(l)];
    link.left = link.capacity;
    link.open = 0;
    for (const Member& member : link.members) {
      const Flow& flow = flows_[at(member.flow)];
      if (flow.mark == mark_)
        ++link.open;
      else
        link.left -= flow.rate;
    }
    link.left = std::max(0.0, link.left);
    push({link.left / link.open, l});
  }
  std::sort(part_.begin(), part_.end(), [this](int a, int b) {
    const Flow& first = flows_[at(a)];
    const Flow& second = flows_[at(b)];
    return first.width != second.width ? first.width < second.width : a < b;
  });
  const auto settle_one = [&](int number, double rate, int bottleneck) {
    Flow& flow = flows_[at(number)];
    flow.solved = round_;
    flow.next = rate;
    flow.bottleneck = bottleneck;
    for (const int l : flow.links) {
      Link& link = links_[at(l)];
      if (link.mark != mark_) continue;
      link.left = std::max(0.0, link.left - rate);
      --link.open;
    }
  };
  const auto solved = [this](int number) { return flows_[at(number)].solved == round_; };
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
    while (narrowest < part_.size() && solved(part_[narrowest])) ++narrowest;
    if (narrowest < part_.size() && flows_[at(part_[narrowest])].width <= share) {
      settle_one(part_[narrowest], flows_[at(part_[narrowest])].width, -1);
      if (link.open > 0) push({link.left / link.open, candidate.link});
      continue;
    }
    for (const Member& member : link.members)
      if (flows_[at(member.flow)].mark == mark_ && !solved(member.flow)) settle_one(member.flow, share, candidate.link);
  }
  for (; narrowest < part_.size(); ++narrowest)
    if (!solved(part_[narrowest])) settle_one(part_[narrowest], flows_[at(part_[narrowest])].width, -1);
}

void FairShares::sum_up(Link& link) {
  if (link.summed == round_) return;
  link.summed = round_;
  link.sum = link.fastest = 0;
  for (const Member& member : link.members) {
    const Flow& flow = flows_[at(member.flow)];
    const double rate = flow.mark == mark_ ? flow.next : flow.rate;
    link.sum += rate;
    link.fastest = std::max(link.fastest, rate);
  }
}

constexpr double rounding = 1e-9;

// Whether it has a bottleneck, which it then remembers.
bool FairShares::find_bottleneck(Flow& flow) {
  const double rate = flow.mark == mark_ ? flow.next : flow.rate;
  flow.bottleneck = -1;
  if (rate >= flow.width * (1 - rounding)) return true;
  for (const int l : flow.links) {
    Link& link = links_[at(l)];
    sum_up(link);
    if (link.sum < link.capacity * (1 - rounding) || rate < link.fastest * (1 - rounding)) continue;
    flow.bottleneck = l;
    return true;
  }
  return false;
}

// Adds the flows to the part that must change with it; false if there are none.
bool FairShares::extend() {
  const std::size_t before = part_.size();
  const std::size_t links = part_links_.size();  // more may come meanwhile; those are of the next round
  for (std::size_t i = 0; i < links; ++i) {
    const Link& link = links_[at(part_links_[i])];
    for (const Member& member : link.members) {
      Flow& flow = flows_[at(member.flow)];
      // Others are held by the links that held them, unless it was this one.
      if (flow.mark != mark_ && flow.bottleneck != part_links_[i]) continue;
      if (find_bottleneck(flow)) continue;
      if (flow.mark != mark_) {
        reach(member.flow);
        continue;
      }
      for (const int l : flow.links) {
        Link& full = links_[at(l)];
        sum_up(full);
        if (full.sum < full.capacity * (1 - rounding)) continue;
        for (const Member& other : full.members)
          if (flows_[at(other.flow)].mark != mark_ && flows_[at(other.flow)].rate > flow.next * (1 + rounding))
            reach(other.flow);
      }
    }
  }
  return part_.size() > before;
}

void FairShares::give(int number, double rate, double now) {
  Flow& flow = flows_[at(number)];
  if (std::abs(rate - flow.rate) <= 1e-12 * rate) return;
  flow.left = std::max(0.0, flow.left - flow.rate * (now - flow.since));
  flow.since = now;
  flow.rate = rate;
  flow.finish = now + flow.left / rate;
  changed_.push_back(number);
}

}  // namespace paceline
