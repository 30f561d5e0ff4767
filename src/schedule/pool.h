// Elements with numbers, reused, and lists of them: what comes and goes by the million in a simulation.
#pragma once

#include <cstddef>
#include <vector>

namespace paceline {

// A list through elements of a pool.
struct Queue {
  int head = -1;
  int tail = -1;
  [[nodiscard]] bool empty() const { return head < 0; }
};

// T has a member `int next`, which makes lists.
template <class T>
class Pool {
 public:
  int take() {
    if (free_ < 0) {
      all_.emplace_back();
      return static_cast<int>(all_.size()) - 1;
    }
    const int number = free_;
    free_ = all_[static_cast<std::size_t>(number)].next;
    all_[static_cast<std::size_t>(number)] = T{};
    return number;
  }
  void give(int number) {
    all_[static_cast<std::size_t>(number)].next = free_;
    free_ = number;
  }
  T& operator[](int number) { return all_[static_cast<std::size_t>(number)]; }
  void append(Queue& queue, int number) {
    all_[static_cast<std::size_t>(number)].next = -1;
    (queue.empty() ? queue.head : all_[static_cast<std::size_t>(queue.tail)].next) = number;
    queue.tail = number;
  }
  int pop(Queue& queue) {
    const int number = queue.head;
    queue.head = all_[static_cast<std::size_t>(number)].next;
    return number;
  }

 private:
  std::vector<T> all_;
  int free_ = -1;
};

}  // namespace paceline
