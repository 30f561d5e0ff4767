#include "comm/node_order.h"

#include <algorithm>

namespace paceline {

NodeOrder node_order(std::vector<std::vector<int>> nodes) {
  NodeOrder found;
  const std::size_t each = nodes.empty() ? 0 : nodes.front().size();
  const auto as_many = [&](const std::vector<int>& ranks) { return ranks.size() == each; };
  if (nodes.size() < 2 || each < 2 || !std::ranges::all_of(nodes, as_many)) return found;
  std::ranges::sort(nodes);
  found.ranks = static_cast<int>(each);
  for (const std::vector<int>& ranks : nodes) found.order.insert(found.order.end(), ranks.begin(), ranks.end());
  if (std::ranges::is_sorted(found.order)) found.order.clear();
  return found;
}

}  // namespace paceline
