// The ranks of one node, all of them in this process, over shared memory.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "schedule/schedule.h"
#include "transport/pattern.h"
#include "transport/shared_memory.h"

namespace paceline {

using Data = std::vector<std::byte>;

inline Call sum_of(std::uint64_t count, std::uint32_t sequence = 1) {
  return make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, count, sequence);
}

inline Call message(std::uint32_t number) {
  return make_call(Collective::send, DataType::uint8, Operation::sum, 0, 1, number);
}

// Staging for a node whose messages longer than a cell all go in slots.
inline constexpr std::size_t only_slots = 0;

// `numbers[i]`: the communicator's rank of the node's i-th.
class Node {
 public:
  explicit Node(int size, ReadInPlace in_place = {}, std::size_t staging = default_staging)
      : Node(ranks_up_to(size), in_place, staging) {}
  explicit Node(std::vector<int> numbers, ReadInPlace in_place = {}, std::size_t staging = default_staging)
      : layout(static_cast<int>(numbers.size()), max_channels, staging),
        numbers_(std::move(numbers)),
        in_place_(in_place) {
    auto created = Segment::create(layout.total());
    REQUIRE_MESSAGE(created.ok(), created.status().message());
    segment = *created;
    begin();
  }

  // (Re)make the transports, as they are made when a communicator begins.
  void begin() {
    transports_.clear();
    std::vector<NodePeer> peers;
    for (int number : numbers_) peers.push_back({number, getpid()});
    transports_.resize(static_cast<std::size_t>(*std::ranges::max_element(numbers_)) + 1);
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      transports_[static_cast<std::size_t>(numbers_[i])] = std::make_unique<SharedMemoryTransport>(
          segment, layout, peers, static_cast<int>(i), static_cast<int>(transports_.size()), in_place_);
  }

  SharedMemoryTransport& operator[](int rank) { return *transports_[static_cast<std::size_t>(rank)]; }

  Attempt send(int from, std::vector<int> to, const Data& data, const Call& call = sum_of(1), bool stays = false,
               int channel = 0) {
    static const std::byte nothing{};  // also an empty message lies somewhere
    return (*this)[from].send(channel, to, call, {data.empty() ? &nothing : data.data(), data.size()}, stays);
  }

  // Receives without release: where the message lies, nullptr if there is none.
  const std::byte* look(int rank, int from, std::size_t bytes, const Call& call = sum_of(1), int channel = 0) {
    const std::byte* data = nullptr;
    const Attempt attempt = (*this)[rank].receive(channel, from, call, bytes, nullptr, &data);
    REQUIRE(attempt != Attempt::failed);
    return attempt == Attempt::done ? data : nullptr;
  }

  // Whether exactly this message comes next.
  bool take(int rank, int from, const Data& expected, const Call& call = sum_of(1), int channel = 0) {
    const std::byte* data = look(rank, from, expected.size(), call, channel);
    if (data == nullptr || !std::equal(expected.begin(), expected.end(), data)) return false;
    (*this)[rank].release(channel, from);
    return true;
  }

  Attempt attempt(int rank, int from, std::size_t bytes, const Call& call) {
    const std::byte* data = nullptr;
    return (*this)[rank].receive(0, from, call, bytes, nullptr, &data);
  }

  // Whether memory of the segment.
  [[nodiscard]] bool has(const std::byte* data) const {
    return data >= segment->data() && data < segment->data() + segment->size();
  }

  NodeLayout layout;
  std::shared_ptr<Segment> segment;

 private:
  static std::vector<int> ranks_up_to(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
    return ranks;
  }

  std::vector<int> numbers_;
  ReadInPlace in_place_;
  std::vector<std::unique_ptr<SharedMemoryTransport>> transports_;
};

// How many of these are accepted until the next is not.
template <class Send>
std::uint32_t accepted(const Send& send) {
  std::uint32_t count = 0;
  while (count < 1000 && send() == Attempt::done) ++count;
  return count;
}

}  // namespace paceline
