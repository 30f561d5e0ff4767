// Values by extent: what is known of each that was named, and of those that overlap another one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>

#include "schedule/extent.h"

namespace paceline {

template <class Value>
class ExtentMap {
 public:
  // Of this very extent; a new one has Value().
  Value& operator[](const Extent& extent) {
    longest_ = std::max(longest_, extent.end - extent.begin);
    return values_[extent];
  }

  // visit(one, value) for each extent that shares an element with this one.
  void visit_overlapping(const Extent& extent, const auto& visit) const {
    const std::ptrdiff_t first = extent.begin - longest_;  // none that begins before reaches as far
    const auto behind = values_.lower_bound({extent.memory, extent.end, extent.end});
    for (auto entry = values_.lower_bound({extent.memory, first, first}); entry != behind; ++entry)
      if (entry->first.end > extent.begin) visit(entry->first, entry->second);
  }
  [[nodiscard]] bool overlaps(const Extent& extent) const {
    bool found = false;
    visit_overlapping(extent, [&](const Extent&, const Value&) { found = true; });
    return found;
  }

 private:
  std::map<Extent, Value> values_;
  std::ptrdiff_t longest_ = 0;
};

}  // namespace paceline
