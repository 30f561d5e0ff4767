#include "transport/shared_memory_node.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace paceline {

TEST_CASE("shm: messages of every size arrive byte for byte, in order") {
  for (int ranks : {2, 9, 17}) {  // with all sizes of cells
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
  }
}

TEST_CASE("shm: where the next message will be written is fetched while a rank waits") {
  // Nothing to see but that it does no harm: also at the end of a slot, and where all slots are full.
  Node node(2, {}, only_slots);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Data data = pattern(7000, i);
    REQUIRE(node.send(0, {1}, data) == Attempt::done);
    for (int look = 0; look < 40; ++look) CHECK(node[0].progress() == Attempt::done);
    CHECK(node.take(1, 0, data));
  }
  CHECK(accepted([&] { return node.send(0, {1}, pattern(7000, 1)); }) == node.layout.cells());
  for (int look = 0; look < 40; ++look) CHECK(node[0].progress() == Attempt::done);
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

TEST_CASE("shm: a ring takes what it has cells for, and then one more for each that is released") {
  for (int ranks : {2, 9, 17}) {  // with all sizes of cells
    for (std::size_t bytes : {std::size_t{0}, std::size_t{40}, std::size_t{104}, std::size_t{105}, std::size_t{296},
                              std::size_t{297}, std::size_t{800}, std::size_t{1000}, std::size_t{5000}}) {
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
  Node node(4, {}, only_slots);
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

TEST_CASE("shm: messages shorter than a slot take all of it in turn, and lie in no more pages than they must") {
  constexpr std::size_t page = 4096;
  // So many of a message go in a page, or it takes so many.
  struct Case {
    std::size_t bytes, in_page, pages;
  };
  for (const Case each : {Case{1500, 2, 1}, Case{3000, 1, 1}, Case{4096, 1, 1}, Case{8092, 1, 2}}) {
    Node node(17, {}, only_slots);  // of short cells
    const std::size_t slot = node.layout.slot_bytes();
    REQUIRE(slot == 4 * page);
    const auto place_of = [&](std::size_t length, std::uint64_t number) {
      const Data data = pattern(length, number);
      CHECK(node.send(0, {1}, data) == Attempt::done);
      const std::byte* place = node.look(1, 0, length);
      REQUIRE(place != nullptr);
      CHECK(node.take(1, 0, data));
      return static_cast<std::size_t>(place - node.segment->data());
    };
    const std::size_t in_slot = 4 / each.pages * each.in_page;
    for (std::size_t turn = 0; turn < 2 * in_slot + 1; ++turn)
      for (std::uint32_t i = 0; i < node.layout.slots(); ++i) {
        const std::size_t number = turn % in_slot;
        const std::size_t behind = number % each.in_page * ((each.bytes + cache_line - 1) / cache_line * cache_line);
        CHECK(place_of(each.bytes, turn) - node.layout.slot(0, 0, i) ==
              number / each.in_page * each.pages * page + behind);
      }
    // What does not fit behind the last one begins at the beginning.
    CHECK(place_of(slot, 9) == node.layout.slot(0, 0, 0));
  }
}

TEST_CASE("shm: who takes nothing is known to whom it leaves no room") {
  const auto holder = [](Node& node, std::vector<int> to) { return node[0].holder(0, to, sum_of(1)); };
  {
    Node node(3);
    const Data data = pattern(8, 1);
    while (node.send(0, {1, 2}, data) == Attempt::done) CHECK(node.take(1, 0, data));
    CHECK(holder(node, {1, 2}) == 2);
    CHECK(holder(node, {1}) == -1);
    CHECK(holder(node, {}) == -1);  // all have left their data
    CHECK(node.take(2, 0, data));
    CHECK(holder(node, {1, 2}) == -1);
  }
  Node node(4, {}, only_slots);
  const Data data = pattern(5000, 2);
  const std::uint32_t half = node.layout.slots() / 2;
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node.send(0, {1}, data) == Attempt::done);
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node.send(0, {2}, data) == Attempt::done);
  CHECK(holder(node, {3}) == 1);  // its slot is the oldest
  CHECK(node[0].holder(0, std::vector{3}, message(1)) == 1);
  CHECK(node[0].holder(1, std::vector{3}, sum_of(1)) == -1);
}

TEST_CASE("shm: in a group, receivers that take nothing leave the others a slot each") {
  Node node(4, {}, only_slots);
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
  Node node(3, {}, only_slots);
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
