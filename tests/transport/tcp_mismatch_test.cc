// How ranks over TCP find out that they are in different calls.
#include <atomic>
#include <barrier>

#include "transport/tcp_ranks.h"

namespace paceline {

TEST_CASE("tcp: a message of another call is a mismatch that names both") {
  run_ranks(2, 1, [](int rank, TcpTransport& transport) {
    std::vector<std::byte> data(40);
    if (rank == 0) {
      CHECK(give(transport, 0, {1}, make_call(Collective::broadcast, DataType::int32, Operation::sum, 0, 10, 4),
                 data) == Attempt::done);
    } else {
      CHECK(take(transport, 0, 0, sum_of(10, 4), data) == Attempt::failed);
      CHECK(transport.failure().code() == Code::mismatch);
      CHECK(transport.failure().detail().rank == 0);
      CHECK(transport.failure().detail().peer == 1);
      CHECK(transport.failure().detail().host == "node-a");
      const std::string& message = transport.failure().message();
      CHECK(message.find("rank 1 called all-reduce #4 of 10 float32, sum") != std::string::npos);
      CHECK(message.find("rank 0 called broadcast #4 of 10 int32, root 0") != std::string::npos);
      // The end is the end.
      CHECK(transport.send(0, std::vector{0}, sum_of(10, 4), data) == Attempt::failed);
      CHECK(transport.progress() == Attempt::failed);
    }
  });
}

TEST_CASE("tcp: a message that nobody has called for is told to who leaves") {
  std::barrier<> end(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    std::vector<std::byte> data(40);
    CHECK(transport.untaken().ok());
    end.arrive_and_wait();
    if (rank == 0)
      CHECK(give(transport, 0, {1}, sum_of(10, 4), data) == Attempt::done);
    else
      CHECK(insist(transport, [&] { return transport.untaken().ok() ? Attempt::later : Attempt::done; }) ==
            Attempt::done);
    end.arrive_and_wait();
    CHECK(transport.untaken().ok() == (rank == 0));
    if (rank == 0) return;
    CHECK(transport.untaken().code() == Code::mismatch);
    CHECK(transport.untaken().message().starts_with(
        "rank 0 called all-reduce #4 of 10 float32, sum, which rank 1 has not"));
    CHECK(take(transport, 0, 0, sum_of(10, 4), data) == Attempt::done);
    CHECK(transport.untaken().ok());
  });
}

TEST_CASE("tcp: a message of another length is refused before it is read") {
  run_ranks(2, 1, [](int rank, TcpTransport& transport) {
    std::vector<std::byte> data(rank == 0 ? 41 : 40);
    if (rank == 0) {
      CHECK(give(transport, 0, {1}, sum_of(10), data) == Attempt::done);
    } else {
      CHECK(take(transport, 0, 0, sum_of(10), data) == Attempt::failed);
      CHECK(transport.failure().code() == Code::internal);
      CHECK(transport.failure().message() ==
            "a message of rank 0 (node-a) in all-reduce #1 of 10 float32, sum has 41 bytes instead of 40");
    }
  });
}

TEST_CASE("tcp: ranks that wait for each other in different calls find out, also through a third") {
  // 0 waits for 1, 1 for 2, 2 for 0; rank 1 is in another call.
  std::atomic<int> found{0};
  std::barrier<> end(3);
  run_ranks(3, 1, [&](int rank, TcpTransport& transport) {
    const Call call =
        rank == 1 ? make_call(Collective::all_gather, DataType::int8, Operation::sum, 0, 5, 3) : sum_of(5, 3);
    std::vector<std::byte> data(20);
    const Attempt attempt = insist(transport, [&] {
      if (found > 0) return Attempt::done;
      const std::byte* where = nullptr;
      const Attempt arrived = transport.receive(0, (rank + 1) % 3, call, 20, data.data(), &where);
      return arrived == Attempt::later && transport.compare((rank + 1) % 3, call) == Attempt::failed ? Attempt::failed
                                                                                                     : arrived;
    });
    if (attempt == Attempt::failed) {
      ++found;
      CHECK(transport.failure().code() == Code::mismatch);
      CHECK(transport.failure().message().find("all-gather #3 of 5 int8") != std::string::npos);
      CHECK(transport.failure().message().find("all-reduce #3 of 5 float32, sum") != std::string::npos);
    }
    end.arrive_and_wait();
    CHECK(found > 0);
  });
}

TEST_CASE("tcp: inquiries of ranks in the same or an earlier call disturb nothing") {
  std::barrier<> step(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    const int other = 1 - rank;
    for (std::uint32_t i = 1; i <= 50; ++i) {
      // Both inquire before they send, so that inquiries stand between the messages.
      CHECK(transport.compare(other, sum_of(3, i)) == Attempt::done);
      CHECK(transport.compare(other, sum_of(3, i)) == Attempt::done);
      CHECK(give(transport, 0, {other}, sum_of(3, i), pattern(12, i)) == Attempt::done);
      std::vector<std::byte> data(12);
      CHECK(take(transport, 0, other, sum_of(3, i), data) == Attempt::done);
      CHECK(data == pattern(12, i));
      if (i % 2 == 0) step.arrive_and_wait();
    }
  });
}

TEST_CASE("tcp: a rank that has ended a call of no elements is seen to differ by the count, also when it has left") {
  for (const bool leaves : {false, true}) {
    std::barrier<> end(2);
    run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
      if (rank == 0) {
        transport.announce(sum_of(0, 4));
      } else {
        std::vector<std::byte> data(40);
        CHECK(insist(transport, [&] {
                const std::byte* where = nullptr;
                const Attempt arrived = transport.receive(0, 0, sum_of(10, 4), 40, data.data(), &where);
                if (arrived != Attempt::later || leaves) return arrived;
                return transport.compare(0, sum_of(10, 4)) == Attempt::failed ? Attempt::failed : arrived;
              }) == Attempt::failed);
        CHECK(transport.failure().code() == Code::mismatch);
        CHECK(transport.failure().message().find("but rank 0 called all-reduce #4 of 0 float32") != std::string::npos);
      }
      if (!leaves) end.arrive_and_wait();
    });
  }
}

TEST_CASE("tcp: a rank that has left after a later call of no elements is past it") {
  run_ranks(2, 1, [](int rank, TcpTransport& transport) {
    if (rank == 0) {
      transport.announce(sum_of(0, 4));
      transport.announce(sum_of(0, 5));
    } else {
      std::vector<std::byte> data(40);
      CHECK(take(transport, 0, 0, sum_of(10, 4), data) == Attempt::failed);
      CHECK(transport.failure().code() == Code::mismatch);
      CHECK(transport.failure().message().find("but rank 0 is past it, in all-reduce #5") != std::string::npos);
    }
  });
}

TEST_CASE("tcp: a rank that has left is asked nothing, for its kernel would drop what it has yet to deliver") {
  BareRank0 rank_0(1);
  CHECK(rank_0.transport->compare(0, sum_of(3, 1)) == Attempt::done);
  rank_0.left = true;
  CHECK(rank_0.transport->compare(0, sum_of(3, 2)) == Attempt::done);
  rank_0.transport->announce(sum_of(0, 3));
  // It would have been answered.
  rank_0.say(0, MessageKind::inquiry, sum_of(3, 1));
  CHECK(rank_0.transport->compare(-1, sum_of(3, 4), false) == Attempt::done);
  rank_0.left = false;
  CHECK(rank_0.transport->compare(0, sum_of(3, 5)) == Attempt::done);
  CHECK(rank_0.hear(0).call == sum_of(3, 1));
  CHECK(rank_0.hear(0).call == sum_of(3, 5));
}

TEST_CASE("tcp: who waits for a rank on its own node still looks at what the others ask") {
  std::barrier<> step(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    if (rank == 0) CHECK(transport.compare(1, sum_of(3, 4)) == Attempt::done);
    step.arrive_and_wait();
    if (rank == 1) {
      CHECK(transport.compare(-1, sum_of(5, 4), false) == Attempt::failed);
      CHECK(transport.failure().code() == Code::mismatch);
      CHECK(transport.failure().detail().rank == 0);
    }
    step.arrive_and_wait();
  });
}

TEST_CASE("tcp: who is asked from an earlier call answers, whomever it waits for") {
  std::barrier<> step(3);
  run_ranks(3, 2, [&](int rank, TcpTransport& transport) {
    if (rank == 0) CHECK(transport.compare(1, sum_of(3, 4)) == Attempt::done);
    step.arrive_and_wait();
    if (rank == 1) CHECK(transport.compare(2, sum_of(3, 5)) == Attempt::done);
    step.arrive_and_wait();
    if (rank == 0) {
      CHECK(transport.compare(1, sum_of(3, 4)) == Attempt::failed);
      CHECK(transport.failure().message().find("but rank 1 is past it, in all-reduce #5") != std::string::npos);
    }
    step.arrive_and_wait();
  });
}

TEST_CASE("tcp: which of two calls is the earlier is known also where their number has wrapped") {
  for (const bool late : {false, true}) {
    const std::uint32_t sent = late ? 0xfffffffe : 1;
    const std::uint32_t waiting = late ? 1 : 0xfffffffe;
    std::barrier<> step(2);
    run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
      if (rank == 1) {
        CHECK(give(transport, 0, {0}, sum_of(3, sent), pattern(12, 1)) == Attempt::done);
        CHECK(leave(transport, 0, 1) == Attempt::done);
        step.arrive_and_wait();
      } else {
        step.arrive_and_wait();
        // A message of a later call has only come early; one of an earlier call nobody takes any more.
        CHECK(transport.compare(1, sum_of(3, waiting)) == (late ? Attempt::failed : Attempt::done));
      }
      step.arrive_and_wait();
    });
  }
}

TEST_CASE("tcp: an inquiry from more than two billion calls ago is no call to come") {
  std::barrier<> step(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    if (rank == 0) CHECK(transport.compare(1, sum_of(3, 7)) == Attempt::done);
    step.arrive_and_wait();
    if (rank == 1) {
      CHECK(transport.compare(0, sum_of(3, 8)) == Attempt::done);
      CHECK(transport.compare(0, sum_of(3, 7 + (1U << 31) + 1000)) == Attempt::done);
      CHECK(transport.compare(0, sum_of(5, 7)) == Attempt::done);  // and not the same call again
    }
    step.arrive_and_wait();
  });
}

TEST_CASE("tcp: a collective called before the send that is waited for is a mismatch, also on another channel") {
  for (const int waited_for : {1, 2}) {
    std::atomic<bool> found{false};
    std::barrier<> end(3);
    run_ranks(3, 2, [&](int rank, TcpTransport& transport) {
      std::vector<std::byte> data(4);
      if (rank == 0) {
        CHECK(give(transport, 1, {1}, sum_of(1), data) == Attempt::done);
        CHECK(insist(transport, [&] {
                if (found) return Attempt::done;
                return transport.compare(waited_for, sum_of(1)) == Attempt::failed ? Attempt::failed : Attempt::later;
              }) == Attempt::done);
      } else if (rank == 1) {
        const Call pair = make_call(Collective::send, DataType::float32, Operation::sum, 0, 1, 7);
        CHECK(insist(transport, [&] {
                const std::byte* where = nullptr;
                const Attempt arrived = transport.receive(0, 0, pair, 4, data.data(), &where);
                if (arrived != Attempt::later) return arrived;
                return transport.compare(0, pair) == Attempt::failed ? Attempt::failed : Attempt::later;
              }) == Attempt::failed);
        found = true;
        CHECK(transport.failure().message() ==
              "rank 1 called send/receive #7 of 1 float32, but rank 0 called all-reduce #1 of 1 float32, sum: every "
              "rank must make the same calls in the same order");
      }
      end.arrive_and_wait();
    });
  }
}

TEST_CASE("tcp: a collective's message may overtake that of an earlier send, on another channel") {
  BareRank0 rank_0(2);
  TcpTransport& transport = *rank_0.transport;
  const auto pair = [](std::uint32_t number) {
    return make_call(Collective::send, DataType::int8, Operation::sum, 0, 4, number);
  };
  std::vector<std::byte> data(4);
  rank_0.say(1, MessageKind::message, sum_of(1, 4), 4);
  rank_0.say(0, MessageKind::inquiry, sum_of(1, 3));  // of a call before
  for (int looks = 0; looks < 5; ++looks) CHECK(transport.compare(0, pair(7)) == Attempt::done);
  rank_0.say(0, MessageKind::message, pair(7), 4);
  rank_0.say(0, MessageKind::inquiry, sum_of(1, 4));
  for (int looks = 0; looks < 5; ++looks) CHECK(transport.compare(0, pair(7)) == Attempt::done);
  CHECK(take(transport, 0, 0, pair(7), data) == Attempt::done);
  for (int looks = 0; looks < 5; ++looks) CHECK(transport.compare(0, pair(8), false) == Attempt::done);
  CHECK(insist(transport, [&] {
          return transport.compare(0, pair(8)) == Attempt::failed ? Attempt::failed : Attempt::later;
        }) == Attempt::failed);
}

TEST_CASE("tcp: who asks for a pair's message says nothing less of the collective that it ended without one") {
  std::barrier<> step(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    if (rank == 0) {
      transport.announce(sum_of(0, 4));
      const Call pair = make_call(Collective::send, DataType::int8, Operation::sum, 0, 4, 1);
      CHECK(transport.compare(1, pair) == Attempt::done);
    }
    step.arrive_and_wait();
    if (rank == 1)
      CHECK(insist(transport, [&] {
              return transport.compare(0, sum_of(10, 4)) == Attempt::failed ? Attempt::failed : Attempt::later;
            }) == Attempt::failed);
    step.arrive_and_wait();
  });
}

TEST_CASE("tcp: sends and receives of pairs are not compared with collectives") {
  std::barrier<> step(2);
  run_ranks(2, 1, [&](int rank, TcpTransport& transport) {
    const Call call = rank == 0 ? make_call(Collective::send, DataType::int8, Operation::sum, 0, 5, 1) : sum_of(5, 1);
    CHECK(transport.compare(1 - rank, call) == Attempt::done);
    step.arrive_and_wait();
    CHECK(transport.compare(1 - rank, call) == Attempt::done);
    step.arrive_and_wait();
  });
}

}  // namespace paceline
