// Flows over links that share them max-min fairly: no flow's rate can grow without another's, that is not larger,
// falling.
//
// A link on which the flows could not use up its bandwidth, even if each were alone on its way, sets nobody's rate. So
// a change is felt only by flows that are connected with it through links that are contended. Of those, the ones on the
// links that changed are solved anew, by filling all of them evenly until a link is full, and again without its flows;
// the rates of all others stay. Rates are max-min fair if each flow has a bottleneck: a full link on which none is
// faster. Where one has none after that, it, or what is faster on its full links, is solved with the others; mostly
// this ends near by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"

namespace paceline {

class FairShares {
 public:
  explicit FairShares(std::vector<double> capacities);  // by link, bytes per us

  // A new flow over these links (at least one, kept by the caller). Its rate is known after settle().
  int add(std::span<const int> links, double bytes, double now);
  void remove(int flow);

  // Gives every flow that a change since the last call concerns its rate. Those whose rate is another than before are
  // in changed().
  void settle(double now);
  [[nodiscard]] std::span<const int> changed() const { return changed_; }

  [[nodiscard]] double finish(int flow) const { return flows_[at(flow)].finish; }  // at the present rate
  [[nodiscard]] double rate(int flow) const { return flows_[at(flow)].rate; }
  // The largest load that each link has had, as a part of its capacity.
  [[nodiscard]] const std::vector<double>& peaks() const { return peaks_; }

 private:
  struct Flow {
    std::span<const int> links;
    std::vector<std::uint32_t> places;  // in each link's list
    double left = 0;                    // bytes, at `since`
    double since = 0;
    double rate = 0;
    double next = 0;   // the rate, while solving
    double width = 0;  // the narrowest link
    double finish = 0;
    int bottleneck = -1;       // link; -1: its width
    std::uint32_t mark = 0;    // in the part
    std::uint32_t solved = 0;  // in this round
    bool alive = false;
  };
  struct Member {
    int flow = 0;
    std::uint32_t place = 0;  // in the flow's links
  };
  struct Link {
    double capacity = 0;
    double wanted = 0;  // sum of its flows' widths
    std::vector<Member> members;
    bool dirty = false;
    bool was_contended = false;
    std::uint32_t mark = 0;
    double left = 0;         // while solving
    std::uint32_t open = 0;  // flows without a rate, while solving
    std::uint32_t summed = 0;
    double sum = 0;      // of the rates
    double fastest = 0;  // of them
  };
  struct Candidate {
    double share = 0;
    int link = 0;
  };

  [[nodiscard]] bool contended(const Link& link) const {
    return link.members.size() > 1 && link.wanted > link.capacity * (1 + 1e-12);
  }
  void touch(int link);
  void reach(int flow);
  void solve();
  bool extend();
  bool find_bottleneck(Flow& flow);
  void sum_up(Link& link);
  void give(int flow, double rate, double now);
  void push(Candidate candidate);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<int> free_;
  std::vector<int> dirty_;
  std::vector<int> fresh_;
  std::vector<int> changed_;
  std::vector<double> peaks_;
  std::uint32_t mark_ = 0;   // of the call
  std::uint32_t round_ = 0;  // of solving
  // Of the part that is being solved.
  std::vector<int> part_;
  std::vector<int> part_links_;
  std::vector<Candidate> heap_;
};

}  // namespace paceline
