// Messages to all ranks, which their sender writes once.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "transport/shared_memory_node.h"

namespace paceline {
namespace {

Attempt tell(Node& node, int from, std::vector<int> to, const Data& data, const Call& call = sum_of(1),
             int channel = 0) {
  static const std::byte nothing{};
  return node[from].send(channel, to, call, {data.empty() ? &nothing : data.data(), data.size()}, false, true);
}

const std::byte* look(Node& node, int rank, int from, std::size_t bytes, const Call& call = sum_of(1),
                      int channel = 0) {
  const std::byte* data = nullptr;
  const Attempt attempt = node[rank].receive(channel, from, call, bytes, nullptr, &data, true);
  REQUIRE(attempt != Attempt::failed);
  return attempt == Attempt::done ? data : nullptr;
}

bool take(Node& node, int rank, int from, const Data& expected, const Call& call = sum_of(1), int channel = 0) {
  const std::byte* data = look(node, rank, from, expected.size(), call, channel);
  if (data == nullptr || !std::equal(expected.begin(), expected.end(), data)) return false;
  return node[rank].release(channel, from, true) == Attempt::done;
}

std::vector<int> others_than(int rank, int ranks) {
  std::vector<int> others;
  for (int other = 0; other < ranks; ++other)
    if (other != rank) others.push_back(other);
  return others;
}

}  // namespace

TEST_CASE("shm board: messages of every size reach all others byte for byte, and lie in one place") {
  for (int ranks : {3, 9, 17}) {  // with all sizes of cells
    Node node(ranks);
    const std::size_t cell = node.layout.cell_payload();
    const std::size_t slot = node.layout.slot_bytes();
    const int from = ranks / 2;
    const auto others = others_than(from, ranks);
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{39}, std::size_t{40}, std::size_t{41},
                              cell - 1, cell, cell + 1, slot - 1, slot, std::size_t{0}}) {
      INFO(ranks, " ranks, ", bytes, " bytes");
      const Data data = pattern(bytes, bytes);
      for (int rank : others) CHECK(look(node, rank, from, bytes) == nullptr);
      CHECK(tell(node, from, others, data) == Attempt::done);
      const std::byte* first = look(node, others[0], from, bytes);
      CHECK(node.has(first));
      for (int rank : others) {
        CHECK(look(node, rank, from, bytes) == first);
        CHECK(node.look(rank, from, bytes) == nullptr);  // not in its mailbox
        CHECK(take(node, rank, from, data));
        CHECK(look(node, rank, from, bytes) == nullptr);
      }
    }
  }
}

TEST_CASE("shm board: senders, channels and mailboxes do not mix") {
  Node node(4);
  const auto number = [](int from, int channel) {
    return 10 * static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(channel);
  };
  for (std::size_t bytes : {std::size_t{8}, std::size_t{900}, std::size_t{5000}}) {
    for (int channel = 0; channel < max_channels; ++channel)
      for (int from = 0; from < 4; ++from) {
        const auto others = others_than(from, 4);
        CHECK(tell(node, from, others, pattern(bytes, number(from, channel)), sum_of(1), channel) == Attempt::done);
        CHECK(node.send(from, {others[1]}, pattern(bytes, 77), sum_of(1), false, channel) == Attempt::done);
      }
    for (int channel = max_channels; channel-- > 0;)
      for (int from = 4; from-- > 0;) {
        const auto others = others_than(from, 4);
        CHECK(node.take(others[1], from, pattern(bytes, 77), sum_of(1), channel));
        for (int to : others) CHECK(take(node, to, from, pattern(bytes, number(from, channel)), sum_of(1), channel));
      }
  }
}

TEST_CASE("shm board: it is full until the last receiver has taken the first message") {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{40}, std::size_t{1000}, std::size_t{5000}}) {
    INFO(bytes, " bytes");
    Node node(5);
    const std::vector<int> others{1, 2, 3, 4};
    std::uint64_t sent = 0;
    const auto send = [&] {
      const Attempt attempt = tell(node, 0, others, pattern(bytes, sent));
      if (attempt == Attempt::done) ++sent;
      return attempt;
    };
    CHECK(accepted(send) == node.layout.cells());
    CHECK(sent >= static_cast<std::uint64_t>(capacity(5)));
    for (std::uint64_t taken = 0; taken < 40; ++taken) {
      for (int rank : {4, 2, 3}) CHECK(take(node, rank, 0, pattern(bytes, taken)));
      CHECK(send() == Attempt::later);
      CHECK(node[0].holder(0, others, sum_of(1), true) == 1);
      CHECK(take(node, 1, 0, pattern(bytes, taken)));
      CHECK(node[0].holder(0, others, sum_of(1), true) == -1);
      CHECK(accepted(send) == 1);
    }
    CHECK(node[0].sent(0) == sent);
    // The mailboxes have room all the time.
    CHECK(node.send(0, {1}, pattern(8, 1)) == Attempt::done);
  }
}

TEST_CASE("shm board: a slot is used again when the last receiver has released it") {
  Node node(3, {}, only_slots);
  const Data shared = pattern(5000, 1);
  const Data single = pattern(5000, 2);
  CHECK(tell(node, 0, {1, 2}, shared) == Attempt::done);
  CHECK(take(node, 1, 0, shared));
  for (std::uint32_t i = 1; i < node.layout.slots(); ++i) {
    CHECK(node.send(0, {1}, single) == Attempt::done);
    CHECK(node.take(1, 0, single));
  }
  CHECK(node.send(0, {1}, single) == Attempt::later);
  CHECK(node[0].holder(0, std::vector{1}, sum_of(1)) == 2);
  CHECK(take(node, 2, 0, shared));
  CHECK(node.send(0, {1}, single) == Attempt::done);
}

TEST_CASE("shm board: new transports go on from what was taken") {
  Node node(3);
  for (std::uint64_t i = 0; i < 5; ++i) {
    CHECK(tell(node, 1, {0, 2}, pattern(8, i)) == Attempt::done);
    for (int rank : {0, 2}) CHECK(take(node, rank, 1, pattern(8, i)));
  }
  node.begin();
  for (int rank : {0, 2}) CHECK(look(node, rank, 1, 8) == nullptr);
  CHECK(tell(node, 1, {0, 2}, pattern(8, 9)) == Attempt::done);
  for (int rank : {0, 2}) CHECK(take(node, rank, 1, pattern(8, 9)));
}

TEST_CASE("shm board: of a larger communicator, the ranks of this node") {
  Node node(std::vector<int>{5, 2, 7});
  const Data data = pattern(600, 3);
  CHECK(tell(node, 7, {2, 5}, data) == Attempt::done);
  CHECK(take(node, 2, 7, data));
  CHECK(take(node, 5, 7, data));
}

TEST_CASE("shm board: all who sleep are woken") {
  Node node(4);
  for (int rank : {1, 2, 3}) node[rank].announce_sleep();
  CHECK(tell(node, 0, {1, 2, 3}, pattern(8, 1)) == Attempt::done);
  const auto begin = std::chrono::steady_clock::now();
  for (int rank : {1, 2, 3}) node[rank].sleep(10e6);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("shm board: a message of another call is a mismatch that names both") {
  Node node(3);
  CHECK(tell(node, 0, {1, 2}, pattern(8, 1), sum_of(2, 812)) == Attempt::done);
  const std::byte* data = nullptr;
  CHECK(node[2].receive(0, 0, sum_of(3, 812), 8, nullptr, &data, true) == Attempt::failed);
  CHECK(node[2].failure().code() == Code::mismatch);
  CHECK(node[2].failure().detail().rank == 0);
}

TEST_CASE("shm board: who waits at the other place finds a message of another call of the same number") {
  const Call other = make_call(Collective::broadcast, DataType::float32, Operation::sum, 0, 10, 4);
  for (const bool on_board : {true, false}) {
    Node node(3);
    CHECK((on_board ? tell(node, 0, {1, 2}, pattern(8, 1), other) : node.send(0, {1}, pattern(8, 1), other)) ==
          Attempt::done);
    const std::byte* data = nullptr;
    CHECK(node[1].receive(0, 0, sum_of(10, 4), 8, nullptr, &data, !on_board) == Attempt::later);
    CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::failed);
    CHECK(node[1].failure().code() == Code::mismatch);
    CHECK(node[1].failure().message().find("but rank 0 called broadcast #4") != std::string::npos);
  }
}

TEST_CASE("shm board: a message of a later call shows that nothing comes for this one") {
  for (const bool on_board : {true, false}) {
    for (const bool sent : {true, false}) {
      Node node(3);
      // What it sent for this call, if anything, may be of any channel.
      if (sent) CHECK(node.send(0, {1}, pattern(8, 1), sum_of(10, 4), false, 1) == Attempt::done);
      CHECK((on_board ? tell(node, 0, {1, 2}, pattern(8, 1), sum_of(10, 5))
                      : node.send(0, {1}, pattern(8, 1), sum_of(10, 5))) == Attempt::done);
      CHECK(node[1].compare(0, sum_of(10, 4), false) == Attempt::done);  // nothing is owed
      CHECK(node[1].compare(0, sum_of(10, 4), true) == (sent ? Attempt::done : Attempt::failed));
      if (sent) continue;
      CHECK(node[1].failure().code() == Code::mismatch);
      CHECK(node[1].failure().message().find("rank 0 is past it, in all-reduce #5") != std::string::npos);
    }
  }
}

TEST_CASE("shm board: a call's first message shows what was left of an earlier one at the other place") {
  for (const bool on_board : {true, false}) {
    Node node(3);
    const auto send = [&](bool to_all, const Call& call) {
      return to_all ? tell(node, 0, {1, 2}, pattern(8, 1), call) : node.send(0, {1}, pattern(8, 1), call);
    };
    const auto receive = [&](const Call& call) {
      const std::byte* data = nullptr;
      const Attempt attempt = node[1].receive(0, 0, call, 8, nullptr, &data, !on_board);
      return attempt == Attempt::done ? node[1].release(0, 0, !on_board) : attempt;
    };
    // What is of this call, or of a later one, is merely not taken yet.
    CHECK(send(!on_board, sum_of(2, 3)) == Attempt::done);
    CHECK(send(!on_board, sum_of(2, 3)) == Attempt::done);
    CHECK(send(!on_board, sum_of(2, 5)) == Attempt::done);
    CHECK(send(on_board, sum_of(2, 4)) == Attempt::done);
    CHECK(receive(sum_of(2, 3)) == Attempt::done);
    CHECK(receive(sum_of(2, 3)) == Attempt::done);
    CHECK(receive(sum_of(2, 5)) == Attempt::failed);
    CHECK(node[1].failure().code() == Code::mismatch);
    CHECK(node[1].failure().message().find("but rank 0 called all-reduce #4") != std::string::npos);
  }
}

TEST_CASE("shm board: messages of pairs say nothing about collectives") {
  Node node(3);
  CHECK(node.send(0, {1}, pattern(8, 1), message(1)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::done);
  CHECK(tell(node, 0, {1, 2}, pattern(8, 2), sum_of(10, 4)) == Attempt::done);
  CHECK(take(node, 1, 0, pattern(8, 2), sum_of(10, 4)));
}

TEST_CASE("shm board: what is read where it lies is worth nothing once its sender's call has failed") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(bytes);
  REQUIRE(memory.ok());
  const std::span<const std::byte> heap(static_cast<std::byte*>(*memory), bytes);
  Node node(3, {.heap_from = bytes, .single_copy_from = 0});
  CHECK(node[0].send(0, std::vector{1, 2}, sum_of(4, 7), heap, true, true) == Attempt::done);
  CHECK(node[0].sent(0) == 0);
  CHECK(look(node, 1, 0, bytes, sum_of(4, 7)) != nullptr);
  CHECK(node[1].release(0, 0, true) == Attempt::done);
  CHECK(node[0].sent(0) == 0);
  CHECK(node[0].holder(0, {}, sum_of(4, 7)) == 2);
  CHECK(look(node, 2, 0, bytes, sum_of(4, 7)) != nullptr);
  node[0].withdraw();
  CHECK(node[2].release(0, 0, true) == Attempt::failed);
  CHECK(node[2].failure().detail().sequence == 7);
  CHECK(free_shared(*memory).ok());
}

TEST_CASE("shm board: four threads tell all others messages of random sizes: everything arrives as it was sent") {
  constexpr std::uint64_t messages = 1500;
  constexpr int ranks = 4;
  Node node(ranks, {}, 4096);
  const std::size_t slot = node.layout.slot_bytes();
  const auto data_of = [&](int from, std::uint64_t i) {
    const std::uint64_t seed = i * ranks + static_cast<std::uint64_t>(from);
    return pattern((seed * 0x9e3779b97f4a7c15 >> 40) % (seed % 5 == 0 ? slot + 1 : 60), seed);
  };
  std::atomic<int> well{0};
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (int me = 0; me < ranks; ++me) {
    threads.emplace_back([&, me] {
      std::uint64_t sent = 0;
      std::uint64_t taken[ranks] = {};
      taken[me] = messages;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      const auto all_taken = [&] { return std::ranges::all_of(taken, [&](auto count) { return count == messages; }); };
      while (sent < messages || !all_taken()) {
        bool moved = false;
        if (sent < messages) {
          const Data data = data_of(me, sent);
          static const std::byte nothing{};
          if (node[me].send(0, others_than(me, ranks), sum_of(1), {data.empty() ? &nothing : data.data(), data.size()},
                            false, true) == Attempt::done) {
            ++sent;
            moved = true;
          }
        }
        for (int other = 0; other < ranks; ++other) {
          if (taken[other] == messages) continue;
          const Data expected = data_of(other, taken[other]);
          const std::byte* data = nullptr;
          const Attempt attempt = node[me].receive(0, other, sum_of(1), expected.size(), nullptr, &data, true);
          if (attempt == Attempt::later) continue;
          if (attempt == Attempt::failed || !std::equal(expected.begin(), expected.end(), data)) return;
          node[me].release(0, other, true);
          ++taken[other];
          moved = true;
        }
        if (std::chrono::steady_clock::now() > deadline) return;
        if (!moved) std::this_thread::yield();
      }
      ++well;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(well == ranks);
}

}  // namespace paceline
