#include "transport/shared_memory.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "schedule/schedule.h"
#include "transport/child.h"
#include "transport/single_copy.h"

namespace paceline {
namespace {

using Data = std::vector<std::byte>;

Call sum_of(std::uint64_t count, std::uint32_t sequence = 1) {
  return make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, count, sequence);
}

Call message(std::uint32_t number) {
  return make_call(Collective::send, DataType::uint8, Operation::sum, 0, 1, number);
}

// Bytes that differ from message to message.
Data pattern(std::size_t bytes, std::uint64_t seed) {
  Data data(bytes);
  std::uint64_t word = seed;
  for (std::size_t i = 0; i < bytes; i += 8) {
    word += 0x9e3779b97f4a7c15;
    std::memcpy(data.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return data;
}

// The ranks of one node, all of them in this process. `numbers[i]`: the communicator's rank of the node's i-th.
class Node {
 public:
  explicit Node(int size, ReadInPlace in_place = {}, std::size_t staging = 0)
      : Node(ranks_up_to(size), in_place, staging) {}
  explicit Node(std::vector<int> numbers, ReadInPlace in_place = {}, std::size_t staging = 0)
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

}  // namespace

// ---- Messages ----

TEST_CASE("shm: messages of every size arrive byte for byte, in order") {
  for (int ranks : {2, 9, 17}) {  // with three sizes of cells
    Node node(ranks);
    const std::size_t cell = node.layout.cell_payload();
    const std::size_t slot = node.layout.slot_bytes();
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{39}, std::size_t{40}, std::size_t{41},
                              cell - 1, cell, cell + 1, slot - 1, slot, std::size_t{0}}) {
      INFO(ranks, " ranks, ", bytes, " bytes");
      const Data data = pattern(bytes, bytes);
      CHECK(node.send(0, {1}, data) == Attempt::done);
      CHECK(node.take(1, 0, data));
      CHECK(node.look(1, 0, bytes) == nullptr);
    }
    CHECK(node[0].largest_message() == slot);
  }
}

TEST_CASE("shm: what fits in a cell goes there, more into a slot") {
  Node node(2);
  const std::size_t cell = node.layout.cell_payload();
  const std::byte* mailbox = node.segment->data() + node.layout.mailbox(0, 1, 0);
  const std::byte* slot = node.segment->data() + node.layout.slot(0, 0, 0);
  CHECK(node.send(0, {1}, pattern(cell, 1)) == Attempt::done);
  CHECK(node.look(1, 0, cell) == mailbox + offsetof(Cell, data));
  node[1].release(0, 0);
  CHECK(node.send(0, {1}, pattern(cell + 1, 1)) == Attempt::done);
  CHECK(node.look(1, 0, cell + 1) == slot);
}

TEST_CASE("shm: a message lies where it is until it is released") {
  Node node(2);
  const Data data = pattern(100, 1);
  CHECK(node.look(1, 0, 100) == nullptr);
  CHECK(node.send(0, {1}, data) == Attempt::done);
  const std::byte* first = node.look(1, 0, 100);
  REQUIRE(first != nullptr);
  CHECK(node.look(1, 0, 100) == first);
  CHECK(node.take(1, 0, data));
}

TEST_CASE("shm: pairs, directions and channels do not mix") {
  Node node(3);
  const auto number = [](int from, int to, int channel) {
    return static_cast<std::uint64_t>(100 * from + 10 * to + channel);
  };
  for (std::size_t bytes : {std::size_t{8}, std::size_t{5000}}) {
    for (int channel = 0; channel < max_channels; ++channel)
      for (int from = 0; from < 3; ++from)
        for (int to = 0; to < 3; ++to)
          if (from != to)
            CHECK(node.send(from, {to}, pattern(bytes, number(from, to, channel)), sum_of(1), false, channel) ==
                  Attempt::done);
    for (int channel = max_channels; channel-- > 0;)
      for (int from = 3; from-- > 0;)
        for (int to = 0; to < 3; ++to)
          if (from != to) CHECK(node.take(to, from, pattern(bytes, number(from, to, channel)), sum_of(1), channel));
  }
}

TEST_CASE("shm: ranks of the communicator are not the node's") {
  Node node(std::vector<int>{5, 2, 7});
  const Data data = pattern(6000, 3);
  CHECK(node.send(7, {2, 5}, data) == Attempt::done);
  CHECK(node.take(2, 7, data));
  CHECK(node.take(5, 7, data));
  CHECK(node.send(2, {7}, pattern(1, 1)) == Attempt::done);
  CHECK(node.attempt(7, 2, 1, sum_of(9)) == Attempt::failed);
  CHECK(node[7].failure().detail().rank == 2);
  CHECK(node[7].failure().detail().peer == 7);
}

// ---- Room ----

TEST_CASE("shm: a ring takes what it has cells for, and then one more for each that is released") {
  for (int ranks : {2, 9}) {
    for (std::size_t bytes : {std::size_t{0}, std::size_t{40}, std::size_t{1000}, std::size_t{5000}}) {
      INFO(ranks, " ranks, ", bytes, " bytes");
      Node node(ranks);
      std::uint64_t sent = 0;
      const auto send = [&] {
        const Attempt attempt = node.send(0, {1}, pattern(bytes, sent));
        if (attempt == Attempt::done) ++sent;
        return attempt;
      };
      CHECK(accepted(send) == node.layout.cells());
      CHECK(sent >= static_cast<std::uint64_t>(capacity(ranks)));
      // Round the ring a few times, full all the time.
      for (std::uint64_t taken = 0; taken < 40; ++taken) {
        CHECK(node.take(1, 0, pattern(bytes, taken)));
        CHECK(accepted(send) == 1);
      }
      CHECK(node[0].sent(0) == sent);
    }
  }
}

TEST_CASE("shm: a full ring to one rank is none to another, nor on another channel") {
  Node node(3);
  const Data data = pattern(8, 1);
  CHECK(accepted([&] { return node.send(0, {1}, data); }) == node.layout.cells());
  CHECK(node.send(0, {2}, data) == Attempt::done);
  CHECK(node.send(0, {1}, data, sum_of(1), false, 1) == Attempt::done);
  CHECK(node.send(0, {1, 2}, data) == Attempt::later);
  CHECK(node.send(0, {2, 1}, data) == Attempt::later);
  // What could not go to all of them has gone to none.
  CHECK(node.take(2, 0, data));
  CHECK(node.look(2, 0, 8) == nullptr);
}

TEST_CASE("shm: capacity messages to all others fit, however large") {
  for (int ranks : {2, 3, 5, 9, 17}) {
    Node node(ranks);
    std::vector<int> others;
    for (int rank = 1; rank < ranks; ++rank) others.push_back(rank);
    for (std::size_t bytes : {std::size_t{1}, node.layout.cell_payload(), node.layout.slot_bytes()}) {
      INFO(ranks, " ranks, ", bytes, " bytes");
      const Data data = pattern(bytes, 4);
      for (int i = 0; i < capacity(ranks); ++i) CHECK(node.send(0, others, data) == Attempt::done);
      for (int i = 0; i < capacity(ranks); ++i)
        for (int rank : others) CHECK(node.take(rank, 0, data));
    }
  }
}

TEST_CASE("shm: slots are used in turn, also when the cells would have room") {
  Node node(4);
  const Data data = pattern(5000, 2);
  const std::uint32_t half = node.layout.slots() / 2;
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node.send(0, {1}, data) == Attempt::done);
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node.send(0, {2}, data) == Attempt::done);
  CHECK(node.send(0, {3}, data) == Attempt::later);
  CHECK(node.send(0, {3}, pattern(8, 1)) == Attempt::done);  // needs none
  CHECK(node.take(2, 0, data));
  CHECK(node.send(0, {3}, data) == Attempt::later);  // the oldest slot is rank 1's
  CHECK(node.take(1, 0, data));
  CHECK(node.send(0, {3}, data) == Attempt::done);
}

TEST_CASE("shm: in a group, receivers that take nothing leave the others a slot each") {
  Node node(4);
  const Data data = pattern(5000, 2);
  for (int idle : {1, 2}) {
    std::uint32_t number = 0;
    CHECK(accepted([&] { return node.send(0, {idle}, data, message(++number)); }) >= 1);
  }
  for (std::uint32_t number = 1; number <= 5; ++number) {
    CHECK(node.send(0, {3}, data, message(number)) == Attempt::done);
    CHECK(node.take(3, 0, data, message(number)));
  }
  CHECK(node.send(0, {3}, data, message(6)) == Attempt::done);
  CHECK(node.send(0, {3}, data, message(7)) == Attempt::later);
}

TEST_CASE("shm: group messages and collectives share the slots: what is taken makes room for either") {
  Node node(2);
  for (std::uint32_t i = 0; i < 50; ++i) {
    const Data mine = pattern(5000, i);
    const Data all = pattern(6000, i);
    CHECK(node.send(0, {1}, mine, message(i)) == Attempt::done);
    const bool side_by_side = node.send(0, {1}, all, sum_of(1, i)) == Attempt::done;
    CHECK(node.take(1, 0, mine, message(i)));
    if (!side_by_side) CHECK(node.send(0, {1}, all, sum_of(1, i)) == Attempt::done);
    CHECK(node.take(1, 0, all, sum_of(1, i)));
  }
}

// ---- Multicast ----

TEST_CASE("shm: a multicast of a line goes into everyone's cells, a longer one into one slot for all") {
  Node node(5);
  for (std::size_t bytes :
       {std::size_t{40}, std::size_t{256}, std::size_t{257}, std::size_t{4136}, std::size_t{9000}}) {
    INFO(bytes, " bytes");
    const Data data = pattern(bytes, bytes);
    CHECK(node.send(2, {0, 1, 3, 4}, data) == Attempt::done);
    const std::byte* first = node.look(0, 2, bytes);
    const bool one_for_all = bytes > 256;  // 1024 in all
    for (int rank : {0, 1, 3, 4}) {
      CHECK((node.look(rank, 2, bytes) == first) == (one_for_all || rank == 0));
      CHECK(node.take(rank, 2, data));
    }
  }
}

TEST_CASE("shm: a slot is used again when the last of its receivers has released it") {
  Node node(3);
  const Data shared = pattern(5000, 1);
  const Data single = pattern(5000, 2);
  CHECK(node.send(0, {1, 2}, shared) == Attempt::done);
  CHECK(node.take(1, 0, shared));
  for (std::uint32_t i = 1; i < node.layout.slots(); ++i) {
    CHECK(node.send(0, {1}, single) == Attempt::done);
    CHECK(node.take(1, 0, single));
  }
  // Rank 1 has taken everything; rank 2 still reads the first.
  CHECK(node.send(0, {1}, single) == Attempt::later);
  CHECK(node.take(2, 0, shared));
  CHECK(node.send(0, {1}, single) == Attempt::done);
  CHECK(node.take(1, 0, single));
}

// ---- Numbers ----

namespace {

// As after `number` messages from one rank to another.
void go_on_from(Node& node, int from, int to, std::uint64_t number) {
  for (int channel = 0; channel < max_channels; ++channel) {
    std::byte* base = node.segment->data();
    reinterpret_cast<Taken*>(base + node.layout.taken(from, to, channel))->count = number;
    for (std::uint64_t earlier = number - node.layout.cells(); earlier < number; ++earlier) {
      const std::size_t cell = (earlier & (node.layout.cells() - 1)) * node.layout.cell_bytes();
      reinterpret_cast<Cell*>(base + node.layout.mailbox(from, to, channel) + cell)->stamp =
          static_cast<std::uint32_t>(earlier + 1);
    }
  }
}

}  // namespace

TEST_CASE("shm: message numbers pass 2^31 and 2^32") {
  constexpr std::uint64_t page = 4096;
  for (std::uint64_t turn : {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{3} << 32}) {
    for (std::size_t bytes : {std::size_t{8}, std::size_t{5000}, std::size_t{4 * page}}) {
      INFO(turn, ", ", bytes, " bytes");
      Node node(3, {.heap_from = 0, .single_copy_from = 4 * page});
      for (int to : {1, 2}) go_on_from(node, 0, to, turn - 20);
      node.begin();
      node[0].use_single_copy(true);
      CHECK(node.look(1, 0, bytes) == nullptr);
      Data place(bytes);
      std::uint64_t sent = 0;
      for (std::uint64_t taken = 0; taken < 40; ++taken) {
        // Data that stays, at one address: what is read from the sender must not change.
        static const Data data = pattern(4 * page, 9);
        const std::span<const std::byte> now(data.data(), bytes);
        const std::vector<int> both{1, 2};
        while (node[0].send(0, both, sum_of(1), now, true) == Attempt::done) ++sent;
        REQUIRE(sent == taken + node.layout.cells());
        for (int rank : both) {
          const std::byte* where = nullptr;
          REQUIRE(node[rank].receive(0, 0, sum_of(1), bytes, place.data(), &where) == Attempt::done);
          REQUIRE(std::equal(now.begin(), now.end(), where));
          REQUIRE(node[rank].compare(0, sum_of(1)) == Attempt::done);
          node[rank].release(0, 0);
        }
        REQUIRE(node[0].sent(0) == (bytes == 4 * page ? taken + 1 : sent));
      }
    }
  }
}

// ---- Messages that stay where they are ----

TEST_CASE("shm: data of paceMemAlloc that stays is read where it is") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(2 * bytes);
  REQUIRE(memory.ok());
  auto* heap = static_cast<std::byte*>(*memory);
  const Data data = pattern(bytes, 5);
  std::memcpy(heap + 100, data.data(), bytes);
  const std::vector<int> to{1, 2};

  Node node(3, {.heap_from = bytes, .single_copy_from = 0});
  CHECK(node[0].send(0, to, sum_of(1), {heap + 100, bytes}, true) == Attempt::done);
  const std::byte* seen = node.look(1, 0, bytes);
  REQUIRE(seen != nullptr);
  CHECK_FALSE(node.has(seen));
  CHECK(std::equal(data.begin(), data.end(), seen));
  heap[100] = std::byte{77};  // one memory
  CHECK(*seen == std::byte{77});
  heap[100] = data[0];

  // Until everyone has released it.
  CHECK(node[0].sent(0) == 0);
  CHECK(node.take(1, 0, data));
  CHECK(node[0].sent(0) == 0);
  CHECK(node.take(2, 0, data));
  CHECK(node[0].sent(0) == 1);

  // What does not stay, is shorter or lies elsewhere is copied.
  CHECK(node[0].send(0, to, sum_of(1), {heap + 100, bytes}, false) == Attempt::done);
  CHECK(node[0].send(0, to, sum_of(1), {heap + 100, bytes - 1}, true) == Attempt::done);
  CHECK(node[0].send(0, to, sum_of(1), data, true) == Attempt::done);
  CHECK(node[0].sent(0) == 4);
  for (std::size_t each : {bytes, bytes - 1, bytes}) {
    CHECK(node.has(node.look(1, 0, each)));
    CHECK(node.take(1, 0, Data(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(each))));
  }
  CHECK(free_shared(heap).ok());
}

TEST_CASE("shm: sent counts the first messages, whatever became of later ones") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(bytes);
  REQUIRE(memory.ok());
  const std::span<const std::byte> heap(static_cast<std::byte*>(*memory), bytes);
  const Data zeros(bytes);
  const Data copied = pattern(bytes, 1);
  const std::vector<int> one{1};
  const std::vector<int> two{2};

  Node node(3, {.heap_from = bytes, .single_copy_from = 0});
  CHECK(node.send(0, {1}, copied) == Attempt::done);
  CHECK(node[0].sent(0) == 1);
  CHECK(node[0].send(0, one, sum_of(1), heap, true) == Attempt::done);  // number 1
  CHECK(node.send(0, {2}, copied) == Attempt::done);
  CHECK(node[0].send(0, two, sum_of(1), heap, true) == Attempt::done);  // number 3
  CHECK(node[0].sent(0) == 1);
  CHECK(node[0].sent(1) == 0);
  CHECK(node.take(2, 0, copied));
  CHECK(node.take(2, 0, zeros));
  CHECK(node[0].sent(0) == 1);
  CHECK(node.take(1, 0, copied));
  CHECK(node[0].sent(0) == 1);
  CHECK(node.take(1, 0, zeros));
  CHECK(node[0].sent(0) == 4);
  CHECK(free_shared(*memory).ok());
}

TEST_CASE("shm: references have a ring like the slots'") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(bytes);
  REQUIRE(memory.ok());
  const std::span<const std::byte> heap(static_cast<std::byte*>(*memory), bytes);
  Node node(4, {.heap_from = bytes, .single_copy_from = 0});
  const std::vector<int> one{1};
  const std::vector<int> two{2};
  const std::vector<int> three{3};
  const std::uint32_t half = node.layout.slots() / 2;
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node[0].send(0, one, sum_of(1), heap, true) == Attempt::done);
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node[0].send(0, two, sum_of(1), heap, true) == Attempt::done);
  CHECK(node[0].send(0, three, sum_of(1), heap, true) == Attempt::later);
  CHECK(node.send(0, {3}, pattern(bytes, 1)) == Attempt::done);  // a slot is free
  CHECK(node.take(1, 0, Data(bytes)));
  CHECK(node[0].send(0, three, sum_of(1), heap, true) == Attempt::done);
  CHECK(free_shared(*memory).ok());
}

TEST_CASE("shm: with single copy, data that stays is read from its process into the place given") {
  constexpr std::size_t bytes = 20'000;
  if (!can_read(getpid(), make_probe())) return;
  Node node(2, {.heap_from = 0, .single_copy_from = bytes});
  const Data data = pattern(bytes, 6);
  Data place(bytes);
  const std::byte* where = nullptr;

  CHECK(node.send(0, {1}, data, sum_of(1), true) == Attempt::done);  // not in use yet
  CHECK(node[0].sent(0) == 1);
  CHECK(node.take(1, 0, data));

  node[0].use_single_copy(true);
  CHECK(node.send(0, {1}, data, sum_of(1), true) == Attempt::done);
  CHECK(node[0].sent(0) == 1);
  CHECK(node[1].receive(0, 0, sum_of(1), bytes, place.data(), &where) == Attempt::done);
  CHECK(where == place.data());
  CHECK(place == data);
  node[1].release(0, 0);
  CHECK(node[0].sent(0) == 2);

  CHECK(node.send(0, {1}, data, sum_of(1), false) == Attempt::done);  // does not stay
  CHECK(node[0].sent(0) == 3);
  CHECK(node.take(1, 0, data));
  node[0].use_single_copy(false);
  CHECK(node.send(0, {1}, data, sum_of(1), true) == Attempt::done);
  CHECK(node[0].sent(0) == 4);
}

TEST_CASE("shm: between two processes") {
  constexpr std::size_t bytes = 100'000;
  const NodeLayout layout(2, max_channels, 0);
  auto created = Segment::create(layout.total());
  REQUIRE(created.ok());
  const pid_t parent = getpid();
  const Data copied = pattern(bytes, 1);
  const Data allocated = pattern(bytes, 2);
  const Data own = pattern(bytes, 3);
  Pipe may_read;
  const std::vector<int> to_parent{1};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto until = [&](const auto& done) {
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  };

  // The child sends through a slot, from memory of paceMemAlloc, and from its own.
  Child child([&] {
    bool readable = false;
    if (!may_read.get(&readable)) return false;
    SharedMemoryTransport transport(*created, layout, {{0, getpid()}, {1, parent}}, 0, 2,
                                    {bytes, readable ? bytes : 0});
    transport.use_single_copy(true);
    auto memory = allocate_shared(bytes);
    if (!memory.ok()) return false;
    auto* heap = static_cast<std::byte*>(*memory);
    std::memcpy(heap, allocated.data(), bytes);
    const Data mine = own;
    return transport.send(0, to_parent, sum_of(1), copied, false) == Attempt::done &&
           transport.send(0, to_parent, sum_of(2), {heap, bytes}, true) == Attempt::done &&
           transport.send(0, to_parent, sum_of(3), mine, true) == Attempt::done &&
           until([&] { return transport.sent(0) == 3; });
  });
  std::byte byte{};
  const bool readable = read_remote(child.pid(), reinterpret_cast<std::uint64_t>(&byte), &byte, 1);
  may_read.put(readable);
  SharedMemoryTransport transport(*created, layout, {{0, child.pid()}, {1, parent}}, 1, 2, {bytes, 0});
  Data place(bytes);
  std::uint64_t number = 0;
  for (const Data* expected : {&copied, &allocated, &own}) {
    const std::byte* where = nullptr;
    Attempt attempt = Attempt::later;
    ++number;
    CHECK(until([&] {
      attempt = transport.receive(0, 0, sum_of(number), bytes, place.data(), &where);
      return attempt != Attempt::later;
    }));
    REQUIRE_MESSAGE(attempt == Attempt::done, transport.failure().message());
    CHECK(std::equal(expected->begin(), expected->end(), where));
    CHECK((where == place.data()) == (readable && number == 3));
    transport.release(0, 0);
  }
  CHECK(child.ended_well());
}

TEST_CASE("shm: memory of a process that is gone is an error that names its rank") {
  constexpr std::size_t bytes = 20'000;
  const NodeLayout layout(2, max_channels, 0);
  auto created = Segment::create(layout.total());
  REQUIRE(created.ok());
  Child child([&] {
    SharedMemoryTransport transport(*created, layout, {{0, getpid()}, {1, getppid()}}, 0, 2, {bytes, bytes});
    transport.use_single_copy(true);
    auto memory = allocate_shared(bytes);
    const std::vector<int> to_parent{1};
    const Data mine(bytes);
    return memory.ok() && transport.send(0, to_parent, sum_of(1), mine, true) == Attempt::done &&
           transport.send(1, to_parent, sum_of(1), {static_cast<std::byte*>(*memory), bytes}, true) == Attempt::done;
  });
  const std::vector<NodePeer> peers{{0, child.pid()}, {1, getpid()}};
  CHECK(child.ended_well());
  for (int channel : {0, 1}) {
    SharedMemoryTransport transport(*created, layout, peers, 1, 2, {bytes, bytes});
    Data place(bytes);
    const std::byte* where = nullptr;
    CHECK(transport.receive(channel, 0, sum_of(1), bytes, place.data(), &where) == Attempt::failed);
    CHECK(transport.failure().code() == Code::remote);
    CHECK(transport.failure().detail().rank == 0);
    CHECK(transport.failure().message().rfind("reading the memory of rank 0: ", 0) == 0);
  }
}

// ---- Mismatches ----

TEST_CASE("shm: a message of another call is a mismatch that names both") {
  Node node(2);
  CHECK(node[1].failure().ok());
  CHECK(node.send(0, {1}, pattern(8, 1), sum_of(2, 812)) == Attempt::done);
  const Call mine = make_call(Collective::broadcast, DataType::float64, Operation::sum, 1, 7, 812);
  CHECK(node.attempt(1, 0, 8, mine) == Attempt::failed);
  const Status failure = node[1].failure();
  CHECK(failure.code() == Code::mismatch);
  CHECK(failure.message() ==
        "rank 1 called broadcast #812 of 7 float64, root 1, but rank 0 called all-reduce #812 of 2 float32, sum: every "
        "rank must make the same calls in the same order");
  CHECK(failure.detail().rank == 0);
  CHECK(failure.detail().peer == 1);
  CHECK(failure.detail().collective == "broadcast");
  CHECK(failure.detail().sequence == 812);
}

TEST_CASE("shm: every word of a call is compared") {
  const Call call = make_call(Collective::reduce, DataType::float32, Operation::sum, 1, 10, 5);
  for (const Call& other : {make_call(Collective::broadcast, DataType::float32, Operation::sum, 1, 10, 5),
                            make_call(Collective::reduce, DataType::int32, Operation::sum, 1, 10, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::max, 1, 10, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::sum, 0, 10, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::sum, 1, 11, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::sum, 1, 10, 6)}) {
    Node node(2);
    CHECK(node.send(0, {1}, pattern(8, 1), other) == Attempt::done);
    CHECK(node.attempt(1, 0, 8, call) == Attempt::failed);
    CHECK(node[1].failure().code() == Code::mismatch);
  }
}

TEST_CASE("shm: a message of another length is a defect, not a mismatch of the user's") {
  Node node(2);
  CHECK(node.send(0, {1}, pattern(8, 1), sum_of(2)) == Attempt::done);
  CHECK(node.attempt(1, 0, 4, sum_of(2)) == Attempt::failed);
  CHECK(node[1].failure().code() == Code::internal);
  CHECK(node[1].failure().message() ==
        "a message of rank 0 in all-reduce #1 of 2 float32, sum has 8 bytes instead of 4");
}

TEST_CASE("shm: ranks that wait in different calls find out by comparing") {
  Node node(2);
  const Call one = sum_of(10, 4);
  const Call other = make_call(Collective::all_gather, DataType::float32, Operation::sum, 0, 10, 4);
  CHECK(node[0].compare(1, one) == Attempt::done);  // the other does not wait yet
  CHECK(node[0].compare(1, one) == Attempt::done);
  CHECK(node[1].compare(0, other) == Attempt::failed);
  CHECK(node[1].failure().message() ==
        "rank 1 called all-gather #4 of 10 float32, but rank 0 called all-reduce #4 of 10 float32, sum: every rank "
        "must make the same calls in the same order");
  CHECK(node[0].compare(1, one) == Attempt::failed);
  CHECK(node[0].failure().detail().rank == 1);
  CHECK(node[0].failure().detail().peer == 0);
}

TEST_CASE("shm: ranks that wait in one call agree, also when they differ by the count alone") {
  Node node(2);
  CHECK(node[0].compare(1, sum_of(10, 4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::done);
  CHECK(node[0].compare(1, sum_of(10, 4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(11, 4)) == Attempt::failed);
  CHECK(node[1].failure().code() == Code::mismatch);
}

TEST_CASE("shm: a rank that waits in a later call without having sent for this one called another") {
  for (std::uint32_t sequence : {std::uint32_t{4}, std::uint32_t{0xffffffff}}) {
    Node node(2);
    CHECK(node[0].compare(1, sum_of(10, sequence + 1)) == Attempt::done);
    CHECK(node[1].compare(0, sum_of(10, sequence)) == Attempt::failed);
    CHECK(node[1].failure().code() == Code::mismatch);
    CHECK(node[1].failure().message().find("but rank 0 is past it, in all-reduce #") != std::string::npos);
    CHECK(node[1].failure().message().find("and sent nothing for it") != std::string::npos);
  }
}

TEST_CASE("shm: a rank that waits in a later call and did send is merely ahead") {
  for (int channel = 0; channel < max_channels; ++channel) {
    Node node(2);
    CHECK(node.send(0, {1}, pattern(8, 1), sum_of(10, 4), false, channel) == Attempt::done);
    CHECK(node[0].compare(1, sum_of(10, 5)) == Attempt::done);
    CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::done);
  }
}

TEST_CASE("shm: a rank that waits in an earlier call is merely late") {
  for (std::uint32_t sequence : {std::uint32_t{5}, std::uint32_t{0}}) {
    Node node(2);
    CHECK(node[0].compare(1, sum_of(10, sequence - 1)) == Attempt::done);
    CHECK(node[1].compare(0, sum_of(10, sequence)) == Attempt::done);
  }
}

TEST_CASE("shm: sends and receives are not compared") {
  Node node(2);
  CHECK(node[0].compare(1, message(4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::done);
  CHECK(node[0].compare(1, message(4)) == Attempt::done);
}

// ---- Sleep ----

namespace {

double seconds_of(const auto& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("shm: a message between announcement and sleep keeps its receiver awake") {
  Node node(2);
  node[1].announce_sleep();
  CHECK(node.send(0, {1}, pattern(8, 1)) == Attempt::done);
  CHECK(seconds_of([&] { node[1].sleep(10e6); }) < 5);
  CHECK(node.take(1, 0, pattern(8, 1)));
}

TEST_CASE("shm: so does a release the rank that waits for room") {
  Node node(2);
  const Data data = pattern(8, 1);
  CHECK(accepted([&] { return node.send(0, {1}, data); }) == node.layout.cells());
  node[0].announce_sleep();
  CHECK(node.take(1, 0, data));
  CHECK(seconds_of([&] { node[0].sleep(10e6); }) < 5);
  CHECK(node.send(0, {1}, data) == Attempt::done);
}

TEST_CASE("shm: sleep ends by its time") {
  Node node(2);
  node[1].announce_sleep();
  const double slept = seconds_of([&] { node[1].sleep(20'000); });
  CHECK(slept >= 0.019);
  CHECK(slept < 5);
  node[1].announce_sleep();
  CHECK(seconds_of([&] { node[1].sleep(0); }) < 5);
}

TEST_CASE("shm: whoever sleeps is woken, turn by turn") {
  Node node(2);
  constexpr std::uint32_t turns = 200;
  const double seconds = seconds_of([&] {
    // Each sleeps until the other's next message; one wake-up missed costs ten seconds.
    const auto play = [&](int me, int other) {
      for (std::uint32_t turn = 0; turn < turns; ++turn) {
        if (turn % 2 == static_cast<std::uint32_t>(me)) {
          if (node.send(me, {other}, pattern(8, turn)) != Attempt::done) return false;
          continue;
        }
        const std::byte* data = nullptr;
        const auto look = [&] { return node[me].receive(0, other, sum_of(1), 8, nullptr, &data); };
        while (look() == Attempt::later) {
          node[me].announce_sleep();
          if (look() == Attempt::later) node[me].sleep(10e6);
        }
        const Data expected = pattern(8, turn);
        if (data == nullptr || !std::equal(expected.begin(), expected.end(), data)) return false;
        node[me].release(0, other);
      }
      return true;
    };
    bool there = false;
    std::thread thread([&] { there = play(1, 0); });
    const bool here = play(0, 1);
    thread.join();
    CHECK(here);
    CHECK(there);
  });
  CHECK(seconds < 9);
}

// ---- All at once ----

TEST_CASE("shm: three threads, all pairs, random sizes: everything arrives as it was sent") {
  constexpr std::uint64_t messages = 1500;
  Node node(3, {}, 4096);
  const std::size_t slot = node.layout.slot_bytes();
  const auto size_of_message = [&](std::uint64_t seed) {
    return (seed * 0x9e3779b97f4a7c15 >> 40) % (seed % 5 == 0 ? slot + 1 : 60);
  };
  const auto seed_of = [](int from, int to, std::uint64_t i) {
    return i * 9 + static_cast<std::uint64_t>(3 * from + to);
  };
  std::atomic<int> well{0};
  std::vector<std::thread> threads;
  for (int me = 0; me < 3; ++me) {
    threads.emplace_back([&, me] {
      const int others[] = {(me + 1) % 3, (me + 2) % 3};
      std::uint64_t sent[2] = {0, 0};
      std::uint64_t taken[2] = {0, 0};
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (sent[0] + sent[1] + taken[0] + taken[1] < 4 * messages) {
        bool moved = false;
        for (int i = 0; i < 2; ++i) {
          const int other = others[i];
          if (sent[i] < messages) {
            const std::uint64_t seed = seed_of(me, other, sent[i]);
            const Data data = pattern(size_of_message(seed), seed);
            if (node.send(me, {other}, data) == Attempt::done) {
              ++sent[i];
              moved = true;
            }
          }
          if (taken[i] < messages) {
            const std::uint64_t seed = seed_of(other, me, taken[i]);
            const Data expected = pattern(size_of_message(seed), seed);
            const std::byte* data = nullptr;
            const Attempt attempt = node[me].receive(0, other, sum_of(1), expected.size(), nullptr, &data);
            if (attempt == Attempt::failed) return;
            if (attempt == Attempt::done) {
              if (!std::equal(expected.begin(), expected.end(), data)) return;
              node[me].release(0, other);
              ++taken[i];
              moved = true;
            }
          }
        }
        if (!moved) {
          if (std::chrono::steady_clock::now() > deadline) return;
          std::this_thread::yield();
        }
      }
      ++well;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(well == 3);
}

}  // namespace paceline
