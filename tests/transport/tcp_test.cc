#include "transport/tcp.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>

#include "bootstrap/forbidden.h"
#include "bootstrap/socket.h"
#include "schedule/schedule.h"
#include "transport/child.h"
#include "transport/tcp_ranks.h"

namespace paceline {
TEST_CASE("tcp: messages of every size arrive byte for byte, in order") {
  // Around the header, the read-ahead buffer and what the kernel takes at once.
  const std::vector<std::size_t> sizes{0,    1,     31,    32,    33,    4096,   8159,    8160, 8191,
                                       8192, 16352, 16383, 16384, 16385, 100000, 1 << 20, 0,    5'000'001};
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (rank == 0) {
        const auto data = pattern(sizes[i], i);
        CHECK(give(transport, 0, {1}, sum_of(i), data) == Attempt::done);
        CHECK(leave(transport, 0, i + 1) == Attempt::done);
      } else {
        std::vector<std::byte> data(sizes[i]);
        CHECK(take(transport, 0, 0, sum_of(i), data) == Attempt::done);
        CHECK(data == pattern(sizes[i], i));
      }
    }
  });
}

TEST_CASE("tcp: a message for several ranks reaches each of them, and is sent when the last has it") {
  run_ranks(4, 1, [](int rank, TcpTransport& transport) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      const auto data = pattern(200'000 * i, i);
      if (rank == 2) {
        CHECK(give(transport, 0, {0, 1, 3}, sum_of(i), data) == Attempt::done);
        CHECK(leave(transport, 0, i + 1) == Attempt::done);
      } else {
        std::vector<std::byte> arrived(data.size());
        CHECK(take(transport, 0, 2, sum_of(i), arrived) == Attempt::done);
        CHECK(arrived == data);
      }
    }
  });
}

TEST_CASE("tcp: thousands of small messages between all pairs on all channels keep their order") {
  run_ranks(3, max_channels, [](int rank, TcpTransport& transport) {
    std::vector<int> others;
    for (int other = 0; other < 3; ++other)
      if (other != rank) others.push_back(other);
    for (std::uint64_t i = 0; i < 500; ++i) {
      for (int channel = 0; channel < max_channels; ++channel) {
        const auto seed = [&](int from) { return i * 100 + static_cast<std::uint64_t>(channel * 10 + from); };
        const auto data = pattern(i % 300, seed(rank));
        CHECK(give(transport, channel, others, sum_of(i), data) == Attempt::done);
        CHECK(leave(transport, channel, i + 1) == Attempt::done);
        for (const int other : others) {
          std::vector<std::byte> arrived(i % 300);
          CHECK(take(transport, channel, other, sum_of(i), arrived) == Attempt::done);
          CHECK(arrived == pattern(i % 300, seed(other)));
        }
      }
    }
  });
}

TEST_CASE("tcp: both ranks send more than the kernel holds before either receives") {
  run_ranks(2, 1, [](int rank, TcpTransport& transport) {
    const int other = 1 - rank;
    const auto message = [](int from, std::uint64_t i) {
      return pattern(i == 0 ? 12 << 20 : 1000, 2 * i + static_cast<std::uint64_t>(from));
    };
    const std::array mine{message(rank, 0), message(rank, 1)};
    for (const auto& data : mine) CHECK(transport.send(0, std::vector{other}, sum_of(1), data) == Attempt::done);
    CHECK(transport.sent(0) == 0);
    for (std::uint64_t i = 0; i < 2; ++i) {
      const auto expected = message(other, i);
      std::vector<std::byte> theirs(expected.size());
      CHECK(take(transport, 0, other, sum_of(1), theirs) == Attempt::done);
      CHECK(theirs == expected);
    }
    CHECK(leave(transport, 0, 2) == Attempt::done);
  });
}

TEST_CASE("tcp: as many messages as the schedule's capacity are accepted while nobody receives, then no more") {
  std::barrier<> step(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    constexpr std::uint64_t room = capacity(2);
    // The first is more than the kernel holds; the others wait behind it.
    const auto data = [](std::uint64_t message) { return pattern(message == 0 ? 12 << 20 : 64, message); };
    std::vector<std::vector<std::byte>> messages;
    for (std::uint64_t i = 0; i <= room; ++i) messages.push_back(data(i));
    if (rank == 0) {
      for (std::uint64_t i = 0; i < room; ++i)
        CHECK(transport.send(0, std::vector{1}, sum_of(i), messages[i]) == Attempt::done);
      CHECK(transport.send(0, std::vector{1}, sum_of(room), messages[room]) == Attempt::later);
      CHECK(transport.sent(0) == 0);
    }
    step.arrive_and_wait();
    if (rank == 0) {
      CHECK(give(transport, 0, {1}, sum_of(room), messages[room]) == Attempt::done);
      CHECK(leave(transport, 0, room + 1) == Attempt::done);
    } else {
      for (std::uint64_t i = 0; i <= room; ++i) {
        std::vector<std::byte> arrived(messages[i].size());
        CHECK(take(transport, 0, 0, sum_of(i), arrived) == Attempt::done);
        CHECK(arrived == messages[i]);
      }
    }
  });
}

TEST_CASE("tcp: messages of pairs that one rank does not take yet do not hold up another's") {
  std::barrier<> step(2);  // ranks 0 and 1
  run_ranks(3, 1, [&](int rank, TcpTransport& transport) {
    constexpr std::uint64_t room = capacity(3);
    const auto call = [](std::uint32_t number) {
      return make_call(Collective::send, DataType::int8, Operation::sum, 0, 9, number);
    };
    const auto data = [](std::uint32_t message) { return pattern(message == 1 ? 12 << 20 : 64, message); };
    std::vector<std::vector<std::byte>> messages;
    for (std::uint32_t i = 1; rank == 0 && i <= 2 * room; ++i) messages.push_back(data(i));
    if (rank == 0) {
      // The first is more than the kernel holds; the others wait behind it.
      std::uint32_t i = 0;
      while (i < messages.size() && transport.send(0, std::vector{1}, call(i + 1), messages[i]) == Attempt::done) ++i;
      CHECK(i >= room);
      CHECK(i < messages.size());
      CHECK(transport.sent(0) == 0);
      const auto other = pattern(1000, 7);
      for (std::uint32_t k = 1; k <= 2 * room; ++k) CHECK(give(transport, 0, {2}, call(k), other) == Attempt::done);
      CHECK(leave(transport, 0, 2 * room) == Attempt::done);
      step.arrive_and_wait();
      for (; i < messages.size(); ++i) CHECK(give(transport, 0, {1}, call(i + 1), messages[i]) == Attempt::done);
      CHECK(leave(transport, 0, messages.size() + 2 * room) == Attempt::done);
      // Collectives go on from there.
      CHECK(give(transport, 0, {1, 2}, sum_of(3), other) == Attempt::done);
      CHECK(leave(transport, 0, messages.size() + 2 * room + 1) == Attempt::done);
    } else if (rank == 1) {
      step.arrive_and_wait();
      for (std::uint32_t i = 1; i <= 2 * room; ++i) {
        std::vector<std::byte> arrived(data(i).size());
        CHECK(take(transport, 0, 0, call(i), arrived) == Attempt::done);
        CHECK(arrived == data(i));
      }
    } else {
      for (std::uint32_t k = 1; k <= 2 * room; ++k) {
        std::vector<std::byte> arrived(1000);
        CHECK(take(transport, 0, 0, call(k), arrived) == Attempt::done);
        CHECK(arrived == pattern(1000, 7));
      }
    }
    std::vector<std::byte> arrived(1000);
    if (rank != 0) CHECK(take(transport, 0, 0, sum_of(3), arrived) == Attempt::done);
  });
}

TEST_CASE("tcp: of a message to several, the one who reads nothing holds it") {
  std::barrier<> step(3);
  run_ranks(3, 2, [&](int rank, TcpTransport& transport) {
    const auto data = pattern(12 << 20, 1);  // more than the kernel holds
    std::vector<std::byte> arrived(data.size());
    if (rank == 0) {
      CHECK(transport.send(0, std::vector{1, 2}, sum_of(1), data) == Attempt::done);
      CHECK(insist(transport, [&] {
              return transport.holder(0, {}, sum_of(1)) == 2 ? Attempt::done : Attempt::later;
            }) == Attempt::done);
      CHECK(transport.holder(0, std::vector{1}, sum_of(2)) == 2);
      CHECK(transport.holder(1, {}, sum_of(1)) == -1);
      step.arrive_and_wait();
      CHECK(leave(transport, 0, 1) == Attempt::done);
      CHECK(transport.holder(0, {}, sum_of(1)) == -1);
    } else {
      if (rank == 2) step.arrive_and_wait();
      CHECK(take(transport, 0, 0, sum_of(1), arrived) == Attempt::done);
      if (rank == 1) step.arrive_and_wait();
    }
  });
}

TEST_CASE("tcp: small messages leave at once") {
  std::barrier<> step(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    if (rank == 0) {
      for (std::uint64_t i = 0; i < 100; ++i) {
        CHECK(transport.send(0, std::vector{1}, sum_of(i), pattern(64, i)) == Attempt::done);  // a temporary
        CHECK(transport.sent(0) == i + 1);
      }
    }
    step.arrive_and_wait();
    std::vector<std::byte> arrived(64);
    for (std::uint64_t i = 0; rank == 1 && i < 100; ++i) {
      CHECK(take(transport, 0, 0, sum_of(i), arrived) == Attempt::done);
      CHECK(arrived == pattern(64, i));
    }
  });
}

TEST_CASE("tcp: sleep ends when a message arrives, and is not cut short by one that waits for a later receive") {
  std::barrier<> step(3);
  run_ranks(3, 1, [&](int rank, TcpTransport& transport) {
    if (rank == 1) CHECK(give(transport, 0, {0}, sum_of(9), pattern(8, 0)) == Attempt::done);
    step.arrive_and_wait();
    if (rank == 0) {
      // What is new to epoll, among it rank 1's message, is told once.
      for (int i = 0; i < 4; ++i) transport.sleep(1000);
      const auto begin = Clock::now();
      transport.sleep(30'000);
      CHECK(Clock::now() - begin >= std::chrono::milliseconds(30));
    }
    step.arrive_and_wait();
    if (rank == 2) CHECK(give(transport, 0, {0}, sum_of(9), pattern(8, 0)) == Attempt::done);
    if (rank == 0) {
      const auto begin = Clock::now();
      transport.sleep(30e6);
      CHECK(Clock::now() - begin < std::chrono::seconds(10));
      std::vector<std::byte> arrived(8);
      CHECK(take(transport, 0, 2, sum_of(9), arrived) == Attempt::done);
      CHECK(take(transport, 0, 1, sum_of(9), arrived) == Attempt::done);
    }
    step.arrive_and_wait();
  });
}

TEST_CASE("tcp: a rank whose host does not answer any more is said to be out of reach") {
  Child child([] {
    const BareRank0 pair(1);
    if (!forbid(SYS_recvfrom, ETIMEDOUT)) return true;
    std::vector<std::byte> data(8);
    return take(*pair.transport, 0, 0, sum_of(2), data) == Attempt::failed &&
           pair.transport->failure().message() ==
               "rank 0 (node-a) cannot be reached during all-reduce #1 of 2 float32, sum: Connection timed out";
  });
  CHECK(child.ended_well());
}

TEST_CASE("tcp: why a connection was lost is told, though it is asked more than once") {
  BareRank0 rank_0(1);
  const linger at_once{.l_onoff = 1, .l_linger = 0};  // closing resets the connection
  REQUIRE(setsockopt(rank_0.lines[0].get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  rank_0.lines[0] = {};
  std::vector<std::byte> data(8);
  CHECK(take(*rank_0.transport, 0, 0, sum_of(2), data) == Attempt::failed);
  CHECK(rank_0.transport->failure().detail().system_errno == ECONNRESET);
  CHECK(rank_0.transport->failure().message() ==
        "rank 0 (node-a) closed its connection during all-reduce #1 of 2 float32, sum: Connection reset by peer");
}

TEST_CASE("tcp: a rank that goes away is named; what it sent before still arrives") {
  run_ranks(2, 1, [](int rank, TcpTransport& transport) {
    std::vector<std::byte> data(100'000);
    if (rank == 1) {
      CHECK(give(transport, 0, {0}, sum_of(1), pattern(100'000, 1)) == Attempt::done);
      CHECK(leave(transport, 0, 1) == Attempt::done);
      return;
    }
    CHECK(transport.compare(1, sum_of(1)) == Attempt::done);  // an inquiry that rank 1 never reads
    CHECK(take(transport, 0, 1, sum_of(1), data) == Attempt::done);
    CHECK(data == pattern(100'000, 1));
    CHECK(take(transport, 0, 1, sum_of(7, 2), data) == Attempt::failed);
    CHECK(transport.failure().code() == Code::remote);
    CHECK(transport.failure().detail().rank == 1);
    CHECK(transport.failure().detail().host == "node-b");
    CHECK(transport.failure().detail().sequence == 2);
    CHECK(transport.failure().message().starts_with(
        "rank 1 (node-b) closed its connection during all-reduce #2 of 7 float32, sum"));
  });
}

TEST_CASE("tcp: more than the kernel holds, sent just before leaving, arrives in spite of an unread inquiry") {
  std::barrier<> step(2);
  constexpr std::size_t bytes = 3'000'000;
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    if (rank == 0) {
      CHECK(transport.compare(1, sum_of(1)) == Attempt::done);
      step.arrive_and_wait();
      std::vector<std::byte> data(bytes);
      CHECK(take(transport, 0, 1, sum_of(1), data) == Attempt::done);
      CHECK(data == pattern(bytes, 1));
    } else {
      step.arrive_and_wait();
      const auto data = pattern(bytes, 1);
      CHECK(give(transport, 0, {0}, sum_of(1), data) == Attempt::done);
      CHECK(leave(transport, 0, 1) == Attempt::done);
    }
  });
}

TEST_CASE("tcp: what was sent just before leaving arrives although an inquiry on another channel is stuck") {
  BareRank0 rank_0(2);
  auto& transport = rank_0.transport;
  TcpConnection reader(std::move(rank_0.lines[0]), 1);
  std::vector<std::byte> data(100'000);
  const auto read_one = [&] {
    MessageHeader header;
    for (;;) {
      TcpConnection::Flow flow = reader.peek(&header, 0);
      if (flow == TcpConnection::Flow::done) flow = reader.take(data.data());
      if (flow != TcpConnection::Flow::later) return flow == TcpConnection::Flow::done;
      if (!wait_for(reader.fd(), POLLIN, seconds_from_now(10)).ok()) return false;
    }
  };
  // More than the kernel holds on the channel that nobody reads.
  const int small = 1;
  CHECK(::setsockopt(rank_0.lines[1].get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
  MessageHeader header;
  for (std::uint32_t i = 1; i <= 150'000; ++i) {
    transport->announce(sum_of(0, i));
    if (i % 1000 != 0) continue;
    CHECK(reader.peek(&header, 0) == TcpConnection::Flow::later);
    CHECK(transport->progress() == Attempt::done);
  }
  // All that the kernel holds on the other one.
  std::uint64_t given = 0;
  for (; given < 1000 && transport->sent(0) == given; ++given)
    CHECK(give(*transport, 0, {0}, sum_of(9, 1), data) == Attempt::done);
  std::uint64_t read = 0;
  for (; transport->sent(0) < given && read < given; ++read) {
    REQUIRE(read_one());
    CHECK(transport->progress() == Attempt::done);
  }
  CHECK(read + 2 < given);
  reader.inquire(sum_of(9, 1));
  CHECK(reader.flush() == TcpConnection::Flow::done);
  transport.reset();
  while (read < given && read_one()) ++read;
  CHECK(read == given);
}

TEST_CASE("tcp: what others say of calls of no elements is read by a rank that makes no others") {
  BareRank0 rank_0(1);
  std::atomic<bool> over{false};
  std::thread saying([&] {
    const auto inquiry = encode({MessageKind::inquiry, 0, sum_of(0, 1)});
    std::vector<std::byte> much;  // more than the kernel holds
    while (much.size() < 12 << 20) much.insert(much.end(), inquiry.begin(), inquiry.end());
    CHECK(send_all(rank_0.lines[0].get(), much, seconds_from_now(10)).ok());
    over = true;
  });
  for (std::uint32_t i = 1; !over; ++i) rank_0.transport->announce(sum_of(0, i));
  saying.join();
}

TEST_CASE("tcp: a rank that dies at any byte of a message is named") {
  for (const std::size_t bytes : {1UL, 31UL, 32UL, 33UL, 1000UL, 50'031UL}) {
    TcpRanks job(2);
    // Rank 0 as a program that ends in the middle of its frame.
    std::thread dying([&] {
      auto fd = connect_to("127.0.0.1", job.listeners[1].port(), seconds_from_now(20));
      REQUIRE(fd.ok());
      CHECK(introduce(fd->get(), "a secret", {data_connection, 0, 0, 77}, seconds_from_now(20)).ok());
      auto frame = pattern(50'032, 1);
      const auto header = encode({MessageKind::message, 50'000, sum_of(2)});
      std::copy(header.begin(), header.end(), frame.begin());
      CHECK(send_all(fd->get(), {frame.data(), bytes}, seconds_from_now(20)).ok());
    });
    auto transport = job.connect(1);
    REQUIRE(transport.ok());
    std::vector<std::byte> data(50'000);
    CHECK(take(**transport, 0, 0, sum_of(2), data) == Attempt::failed);
    CHECK((*transport)->failure().code() == Code::remote);
    CHECK((*transport)->failure().detail().rank == 0);
    dying.join();
  }
}

TEST_CASE("tcp: sending to a rank that went away fails and names it") {
  std::barrier<> gone(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    if (rank == 1) return gone.arrive_and_drop();
    gone.arrive_and_wait();
    const std::vector<std::byte> data(1 << 20);
    std::uint64_t i = 0;
    Attempt attempt = Attempt::done;
    while (attempt == Attempt::done && i < 1000) attempt = give(transport, 0, {1}, sum_of(++i), data);
    CHECK(attempt == Attempt::failed);
    CHECK(transport.failure().code() == Code::remote);
    CHECK(transport.failure().detail().rank == 1);
  });
}

TEST_CASE("tcp: bytes that are no frame end the communicator and name who sent them") {
  TcpRanks job(2);
  std::thread confused([&] {
    auto fd = connect_to("127.0.0.1", job.listeners[1].port(), seconds_from_now(20));
    REQUIRE(fd.ok());
    CHECK(introduce(fd->get(), "a secret", {data_connection, 0, 0, 77}, seconds_from_now(20)).ok());
    CHECK(send_all(fd->get(), std::vector<std::byte>(64, std::byte{0xee}), seconds_from_now(20)).ok());
  });
  auto transport = job.connect(1);
  REQUIRE(transport.ok());
  std::vector<std::byte> data(8);
  CHECK(take(**transport, 0, 0, sum_of(2), data) == Attempt::failed);
  CHECK((*transport)->failure().message() ==
        "from rank 0 (node-a): malformed message header: it begins with 0xeeeeeeee");
  confused.join();
}

namespace {

std::vector<std::unique_ptr<TcpTransport>> connect_two() {
  std::vector<std::unique_ptr<TcpTransport>> transports(2);
  TcpRanks job(2);
  job.each([&](int rank) {
    auto transport = job.connect(rank);
    CHECK_MESSAGE(transport.ok(), transport.status().message());
    if (transport.ok()) transports[static_cast<std::size_t>(rank)] = std::move(*transport);
  });
  return transports;
}

}  // namespace

TEST_CASE("tcp: sleep takes its time also where a sandbox refuses the system call that it would rather make") {
  auto ranks = connect_two();
  for (const int error : {ENOSYS, EPERM}) {
    Child child([&] {
      if (!forbid(SYS_epoll_pwait2, static_cast<unsigned>(error))) return true;
      for (int i = 0; i < 4; ++i) ranks[0]->sleep(1000);  // what is new is told once
      const auto begin = Clock::now();
      ranks[0]->sleep(30'000);
      return Clock::now() - begin >= std::chrono::milliseconds(30);
    });
    CHECK(child.ended_well());
  }
}

TEST_CASE("tcp: a forked child may destroy its copy; what has arrived is the parent's") {
  auto ranks = connect_two();
  const auto data = pattern(100'000, 1);
  CHECK(give(*ranks[0], 0, {1}, sum_of(1), data) == Attempt::done);
  Child child([&] {
    ranks.clear();
    return true;
  });
  CHECK(child.ended_well());
  std::vector<std::byte> arrived(data.size());
  CHECK(take(*ranks[1], 0, 0, sum_of(1), arrived) == Attempt::done);
  CHECK(arrived == data);
}

TEST_CASE("tcp: a rank that leaves is gone, whatever child of it lives on") {
  auto ranks = connect_two();
  Pipe runs;
  Pipe let_go;
  Child child([&] {
    int one = 0;
    return runs.put(1) && let_go.get(&one);
  });
  int one = 0;
  REQUIRE(runs.get(&one));
  ranks[1].reset();
  std::vector<std::byte> data(8);
  CHECK(take(*ranks[0], 0, 1, sum_of(2), data) == Attempt::failed);
  CHECK(ranks[0]->failure().detail().rank == 1);
  CHECK(let_go.put(1));
  CHECK(child.ended_well());
}

}  // namespace paceline
