#include "algorithms/order.h"

#include <algorithm>

namespace paceline {

std::vector<int> order_from(const Schedule& schedule, int first) {
  std::vector<int> order;
  order.reserve(static_cast<std::size_t>(schedule.ranks()));
  for (int position = 0; position < schedule.ranks(); ++position) order.push_back(schedule.in_order(position));
  std::rotate(order.begin(), std::find(order.begin(), order.end(), first), order.end());
  return order;
}

std::vector<Place> by_rank(std::vector<Place> places) {
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.rank < b.rank; });
  return places;
}

std::vector<Place> on_every_rank(const Schedule& schedule, Buffer buffer, std::size_t offset) {
  std::vector<Place> places;
  places.reserve(static_cast<std::size_t>(schedule.ranks()));
  for (int rank = 0; rank < schedule.ranks(); ++rank) places.push_back({rank, buffer, offset});
  return places;
}

}  // namespace paceline
