// When each flow ends, the first one first: a heap in which a flow has one place, and moves when its end does.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/index.h"

namespace paceline {

class FlowEnds {
 public:
  struct End {
    double time = 0;
    std::uint64_t order = 0;  // of ends at one time
    int flow = 0;
    [[nodiscard]] bool before(double other_time, std::uint64_t other_order) const {
      return time != other_time ? time < other_time : order < other_order;
    }
  };

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] const End& first() const { return heap_.front(); }

  // The flow's end from now on, whether or not it had one.
  void set(const End& end) {
    if (at(end.flow) >= places_.size()) places_.resize(at(end.flow) + 1, none);
    std::size_t place = places_[at(end.flow)];
    if (place == none) {
      place = heap_.size();
      heap_.push_back(end);
    }
    settle(place, end);
  }

  void remove_first() {
    places_[at(heap_.front().flow)] = none;
    const End last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) settle(0, last);
  }

 private:
  static constexpr auto none = static_cast<std::size_t>(-1);

  [[nodiscard]] static bool before(const End& a, const End& b) { return a.before(b.time, b.order); }
  void put(std::size_t place, const End& end) {
    heap_[place] = end;
    places_[at(end.flow)] = place;
  }
  // Puts the end at this place, or above or below it.
  void settle(std::size_t place, const End& end) {
    for (; place > 0 && before(end, heap_[(place - 1) / 2]); place = (place - 1) / 2)
      put(place, heap_[(place - 1) / 2]);
    for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], end)) break;
      put(place, heap_[child]);
      place = child;
    }
    put(place, end);
  }

  std::vector<End> heap_;
  std::vector<std::size_t> places_;  // by flow
};

}  // namespace paceline
