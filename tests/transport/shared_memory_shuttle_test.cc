#include "transport/shared_memory_node.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace paceline {
namespace {

// Of all ranks' shuttles that in which this is; -1: none.
int shuttle_at(const Node& node, const std::byte* place) {
  for (std::uint32_t number = 0; number < node.layout.shuttles(); ++number) {
    const std::byte* begin = node.segment->data() + node.layout.shuttle(number);
    if (place >= begin && place < begin + node.layout.shuttle_bytes()) return static_cast<int>(number);
  }
  return -1;
}

}  // namespace

TEST_CASE("shm: what is short goes in a cell, more in a shuttle, and more, or if there is none, in a slot") {
  Node node(2);
  const std::size_t longest = node.layout.shuttle_bytes();
  const std::size_t cell = node.layout.cell_payload();
  constexpr std::size_t five_lines = 5 * cache_line - offsetof(Cell, data);
  const std::byte* staging = node.segment->data() + node.layout.slot(0, 0, 0);
  const std::byte* mailbox = node.segment->data() + node.layout.mailbox(0, 1, 0);
  std::size_t messages = 0;
  // Where the next message lies, which is taken.
  const auto send = [&](std::size_t bytes) {
    CHECK(node.send(0, {1}, pattern(bytes, 1)) == Attempt::done);
    const std::byte* place = node.look(1, 0, bytes);
    node[1].release(0, 0);
    ++messages;
    return place;
  };
  const auto cell_of_next = [&] {
    return mailbox + messages % node.layout.cells() * node.layout.cell_bytes() + offsetof(Cell, data);
  };
  const auto check_in_cell = [&](std::size_t bytes) {
    const std::byte* expected = cell_of_next();
    CHECK(send(bytes) == expected);
  };
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{40}, five_lines}) check_in_cell(bytes);
  for (const std::size_t bytes : {five_lines + 1, cell, 2 * cell, longest}) CHECK(shuttle_at(node, send(bytes)) >= 0);
  CHECK(send(longest + 1) == staging);
  for (std::uint32_t left = shuttles_of_rank - 4; left > 4; --left) CHECK(shuttle_at(node, send(five_lines + 1)) >= 0);
  // The last ones are for what no cell holds.
  for (const std::size_t bytes : {five_lines + 1, cell}) check_in_cell(bytes);
  for (int left = 4; left > 0; --left) CHECK(shuttle_at(node, send(cell + 1)) >= 0);
  check_in_cell(cell);
  CHECK(send(cell + 1) >= staging);
  CHECK(send(cell + 1) < staging + node.layout.slots() * node.layout.slot_bytes());
}

TEST_CASE("shm: what a node of many ranks has no room for in its short cells goes in a shuttle") {
  Node node(17);
  const std::size_t cell = node.layout.cell_payload();
  CHECK(cell < 200);
  for (const std::size_t bytes : {cell, cell + 1, std::size_t{200}, std::size_t{296}, std::size_t{297}}) {
    CAPTURE(bytes);
    CHECK(node.send(0, {1}, pattern(bytes, 1)) == Attempt::done);
    CHECK((shuttle_at(node, node.look(1, 0, bytes)) >= 0) == (bytes > cell));
    CHECK(node.take(1, 0, pattern(bytes, 1)));
  }
}

TEST_CASE("shm: a shuttle is whose it was sent to") {
  Node node(3);
  constexpr std::size_t bytes = 4000;
  std::uint64_t sent = 0;
  // Whether the next message goes in a shuttle: its number, -1 for staging.
  const auto send = [&](int from, int to) {
    const Data data = pattern(bytes, ++sent);
    REQUIRE(node.send(from, {to}, data) == Attempt::done);
    const int number = shuttle_at(node, node.look(to, from, bytes));
    CHECK(node.take(to, from, data));
    return number;
  };
  // All that rank `from` has go over.
  const auto give_all = [&](int from, int to) {
    std::set<int> numbers;
    for (int number = send(from, to); number >= 0; number = send(from, to)) CHECK(numbers.insert(number).second);
    return numbers.size();
  };
  CHECK(give_all(0, 1) == shuttles_of_rank);
  CHECK(send(0, 2) == -1);
  // To and fro, and round: always the one that came last.
  const int last = send(1, 0);
  for (int i = 0; i < 100; ++i) {
    CHECK(send(0, 1) == last);
    CHECK(send(1, 2) == last);
    CHECK(send(2, 0) == last);
  }
  CHECK(give_all(1, 0) == 2 * shuttles_of_rank - 1);
  CHECK(give_all(2, 0) == shuttles_of_rank);
  CHECK(give_all(0, 2) == node.layout.shuttles());
  // A message to several has no one to whom a shuttle could belong.
  CHECK(node.send(2, {0, 1}, pattern(bytes, 1)) == Attempt::done);
  CHECK(shuttle_at(node, node.look(0, 2, bytes)) == -1);
}

TEST_CASE("shm: messages of two lengths in turn go each in the shuttles of their length") {
  Node node(2);
  const auto send = [&](int from, std::size_t bytes) {
    const Data data = pattern(bytes, bytes);
    REQUIRE(node.send(from, {1 - from}, data) == Attempt::done);
    const int number = shuttle_at(node, node.look(1 - from, from, bytes));
    CHECK(node.take(1 - from, from, data));
    return number;
  };
  std::set<int> of_long;
  std::set<int> of_short;
  for (int i = 0; i < 30; ++i) {
    if (i == 10) {
      of_long.clear();
      of_short.clear();
    }
    for (int from : {1, 0}) {
      of_long.insert(send(from, i % 2 == 0 ? 100'000 : 99'000));
      of_short.insert(send(from, i % 2 == 0 ? 20'000 : 19'000));
    }
  }
  for (const int number : of_short) CHECK(of_long.count(number) == 0);
  // Longer than any that has come: one that has not been in use.
  const int other = send(1, 110'000);
  CHECK(of_long.count(other) + of_short.count(other) == 0);
}

TEST_CASE("shm: a longer message goes where one was read not just now, and in no more places than that needs") {
  for (const std::size_t bytes :
       {std::size_t{4097}, std::size_t{20'000}, std::size_t{64 << 10}, std::size_t{128 << 10}}) {
    Node node(2);
    std::vector<int> came[2];  // numbers of shuttles, to each rank
    std::set<int> in_use;
    for (std::size_t i = 0; i < 300; ++i) {
      if (i == 200) in_use.clear();
      for (std::size_t from : {0, 1}) {
        const Data data = pattern(bytes, i);
        const int to = static_cast<int>(1 - from);
        REQUIRE(node.send(static_cast<int>(from), {to}, data) == Attempt::done);
        const int number = shuttle_at(node, node.look(to, static_cast<int>(from), bytes));
        REQUIRE(number >= 0);
        CHECK(node.take(to, static_cast<int>(from), data));
        in_use.insert(number);
        const auto last = std::ranges::find(came[from].rbegin(), came[from].rend(), number);
        const auto since = static_cast<std::size_t>(last - came[from].rbegin()) + 1;
        const bool all_are_in_use = bytes * shuttles_of_rank < 128 << 10;
        if (last != came[from].rend() && !all_are_in_use) CHECK(since * bytes >= 128 << 10);
        came[to].push_back(number);
      }
    }
    CHECK(in_use.size() <= std::min<std::size_t>(2 * ((128 << 10) / bytes + 1), 2 * shuttles_of_rank));
  }
}

TEST_CASE("shm: a shuttle that has not been taken is not written again") {
  for (std::size_t bytes : {std::size_t{5000}, std::size_t{8192}, std::size_t{8193}, std::size_t{50'000}}) {
    Node node(3);
    const auto data = [&](int from, int to, std::uint32_t i) {
      return pattern(bytes, 100 * i + static_cast<std::uint64_t>(10 * from + to));
    };
    const auto each = [](const auto& does) {
      for (int from = 0; from < 3; ++from)
        for (int to = 0; to < 3; ++to)
          if (from != to) does(from, to);
    };
    for (std::uint32_t turn = 0; turn < 5; ++turn) {
      each([&](int from, int to) {
        for (std::uint32_t i = 0; i < node.layout.cells(); ++i)
          REQUIRE(node.send(from, {to}, data(from, to, i)) == Attempt::done);
      });
      each([&](int from, int to) {
        for (std::uint32_t i = 0; i < node.layout.cells(); ++i) CHECK(node.take(to, from, data(from, to, i)));
      });
    }
  }
}

TEST_CASE("shm: a shuttle that is kept goes on when it is told to, with what was written there") {
  Node node(3);
  for (std::size_t bytes : {std::size_t{1025}, std::size_t{8192}, std::size_t{50'000}}) {
    REQUIRE(node.send(0, {1}, pattern(bytes, 1)) == Attempt::done);
    const int number = shuttle_at(node, node.look(1, 0, bytes));
    REQUIRE(number >= 0);
    std::byte* message = node[1].own(0, 0, false);
    CHECK(message == node.look(1, 0, bytes));
    const Data folded = pattern(bytes, 2);
    std::ranges::copy(folded, message);
    std::uint32_t kept = 0;
    CHECK(node[1].keep(0, 0, false, &kept) == Attempt::done);
    CHECK(kept == static_cast<std::uint32_t>(number));
    // Meanwhile others are in use: all that rank 1 has left, and that one is not among them.
    for (std::uint32_t i = 0; i < node.layout.shuttles(); ++i) {
      REQUIRE(node.send(1, {0}, pattern(bytes, 3 + i)) == Attempt::done);
      CHECK(shuttle_at(node, node.look(0, 1, bytes)) != number);
      CHECK(node.take(0, 1, pattern(bytes, 3 + i)));
    }
    CHECK(node[1].pass_on(0, 2, sum_of(1), kept, bytes, false) == Attempt::done);
    CHECK(node[1].sent(0) > 0);
    CHECK(shuttle_at(node, node.look(2, 1, bytes)) == number);
    CHECK(node.take(2, 1, folded));
    // It is rank 2's now: one of all that it gives.
    std::set<int> given;
    for (std::uint32_t i = 0; i < node.layout.shuttles(); ++i) {
      REQUIRE(node.send(2, {0}, folded) == Attempt::done);
      given.insert(shuttle_at(node, node.look(0, 2, bytes)));
      CHECK(node.take(0, 2, folded));
    }
    CHECK(given.count(number) == 1);
    node.begin();
  }
}

TEST_CASE("shm: only what lies in a shuttle can be kept; to pass it on there must be room") {
  Node node(2);
  REQUIRE(node.send(0, {1}, pattern(40, 1)) == Attempt::done);
  REQUIRE(node.look(1, 0, 40) != nullptr);
  CHECK(node[1].own(0, 0, false) == nullptr);
  node[1].release(0, 0);
  REQUIRE(node.send(0, {1}, pattern(5000, 1)) == Attempt::done);
  REQUIRE(node.look(1, 0, 5000) != nullptr);
  std::uint32_t kept = 0;
  REQUIRE(node[1].own(0, 0, false) != nullptr);
  CHECK(node[1].keep(0, 0, false, &kept) == Attempt::done);
  const std::uint32_t room = accepted([&] { return node.send(1, {0}, pattern(8, 1)); });
  CHECK(room == node.layout.cells());
  CHECK(node[1].pass_on(0, 0, sum_of(1), kept, 5000, false) == Attempt::later);
  CHECK(node.take(0, 1, pattern(8, 1)));
  CHECK(node[1].pass_on(0, 0, sum_of(1), kept, 5000, false) == Attempt::done);
  for (std::uint32_t i = 1; i < room; ++i) CHECK(node.take(0, 1, pattern(8, 1)));
  CHECK(node.take(0, 1, pattern(5000, 1)));

  Node little(2, {}, only_slots);
  REQUIRE(little.send(0, {1}, pattern(5000, 1)) == Attempt::done);
  REQUIRE(little.look(1, 0, 5000) != nullptr);
  CHECK(little[1].own(0, 0, false) == nullptr);
}

TEST_CASE("shm: new transports begin with their own shuttles") {
  Node node(2);
  for (std::uint32_t i = 0; i < shuttles_of_rank; ++i) {
    CHECK(node.send(0, {1}, pattern(5000, i)) == Attempt::done);
    CHECK(node.take(1, 0, pattern(5000, i)));
  }
  node.begin();
  const auto data = [](int from, std::uint32_t i) { return pattern(5000, 100 * i + static_cast<std::uint64_t>(from)); };
  for (int from : {0, 1})
    for (std::uint32_t i = 0; i < node.layout.cells(); ++i)
      CHECK(node.send(from, {1 - from}, data(from, i)) == Attempt::done);
  for (int from : {0, 1}) {
    CHECK(shuttle_at(node, node.look(1 - from, from, 5000)) / static_cast<int>(shuttles_of_rank) == from);
    for (std::uint32_t i = 0; i < node.layout.cells(); ++i) CHECK(node.take(1 - from, from, data(from, i)));
  }
}

TEST_CASE("shm: where there is little staging there are no shuttles") {
  Node node(2, {}, only_slots);
  CHECK(node.layout.shuttles() == 0);
  CHECK(node.send(0, {1}, pattern(5000, 1)) == Attempt::done);
  CHECK(node.look(1, 0, 5000) == node.segment->data() + node.layout.slot(0, 0, 0));
}

}  // namespace paceline
