#include "transport/shared_memory_node.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace paceline {

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

TEST_CASE("shm: a wait that has ended is no wait in a call to come, once numbers have wrapped") {
  Node node(2);
  CHECK(node[0].compare(1, sum_of(2, 7)) == Attempt::done);
  node[0].end_wait();
  CHECK(node[1].compare(0, sum_of(2, 7 + (1U << 31) + 1000)) == Attempt::done);
  node[1].end_wait();
  CHECK(node[1].compare(0, sum_of(3, 7)) == Attempt::done);
}

TEST_CASE("shm: every word of a call is compared") {
  const Call call = make_call(Collective::reduce, DataType::float32, Operation::sum, 1, 10, 5);
  for (const Call& other : {make_call(Collective::broadcast, DataType::float32, Operation::sum, 1, 10, 5),
                            make_call(Collective::reduce, DataType::int32, Operation::sum, 1, 10, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::max, 1, 10, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::sum, 0, 10, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::sum, 1, 11, 5),
                            make_call(Collective::reduce, DataType::float32, Operation::sum, 1, 10, 6),
                            make_call(Collective::reduce, DataType::float32, Operation::sum, 1, 10, 5, 9)}) {
    Node node(2);
    CHECK(node.send(0, {1}, pattern(8, 1), other) == Attempt::done);
    CHECK(node.attempt(1, 0, 8, call) == Attempt::failed);
    CHECK(node[1].failure().code() == Code::mismatch);
  }
}

TEST_CASE("shm: a message of the same call by another plan is a mismatch that says so") {
  Node node(2);
  const auto call = [](std::uint16_t way) {
    return make_call(Collective::broadcast, DataType::float32, Operation::sum, 0, 2, 7, way);
  };
  CHECK(node.send(0, {1}, pattern(8, 1), call(1)) == Attempt::done);
  CHECK(node.attempt(1, 0, 8, call(2)) == Attempt::failed);
  CHECK(node[1].failure().message() ==
        "rank 1 and rank 0 run broadcast #7 of 2 float32, root 0 by different algorithms, chunks or radices: what is "
        "forced "
        "(paceCommSetAlgorithm, PACELINE_ALGORITHM, PACELINE_CHUNK) and the tuning must be the same on every rank");
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

TEST_CASE("shm: who waits finds that the communicator has ended on another rank, and why") {
  for (const Call& call : {sum_of(10), message(7)}) {
    Node node(3);
    CHECK(node[0].compare(1, call) == Attempt::done);
    Status::Detail why;
    why.code = Code::aborted;
    why.rank = 2;
    why.message = "rank 2 aborted the communicator";
    node[2].show_failure(Status(why));
    why.message = "something else";
    node[2].show_failure(Status(why));  // the first stands
    node[2].show_departure(4);
    std::uint32_t last = 0;
    CHECK_FALSE(node[0].has_left(2, &last));
    CHECK(node[0].compare(1, call) == Attempt::failed);
    CHECK(node[0].failure().code() == Code::aborted);
    CHECK(node[0].failure().detail().rank == 2);
    CHECK(node[0].failure().message() == "rank 2 aborted the communicator");
  }
}

TEST_CASE("shm: a rank that has left is known to have, and is no failure") {
  Node node({1, 4});
  std::uint32_t last = 0;
  CHECK_FALSE(node[1].has_left(4, &last));
  node[4].show_departure(17);
  CHECK(node[1].has_left(4, &last));
  CHECK(last == 17);
  CHECK(node[1].compare(4, sum_of(10)) == Attempt::done);
}

TEST_CASE("shm: ranks that wait in one call agree, also when they differ by the count alone") {
  Node node(2);
  CHECK(node[0].compare(1, sum_of(10, 4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::done);
  CHECK(node[0].compare(1, sum_of(10, 4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(11, 4)) == Attempt::failed);
  CHECK(node[1].failure().code() == Code::mismatch);
}

TEST_CASE("shm: a rank that has ended a call of no elements is seen to differ by the count") {
  Node node(3);
  node[0].announce(sum_of(0, 4));
  for (int calls = 0; calls < 3; ++calls) node[0].end_wait();  // its own, and others since
  CHECK(node[1].compare(0, sum_of(0, 4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 5)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::failed);
  CHECK(node[1].failure().message().find("but rank 0 called all-reduce #4 of 0 float32") != std::string::npos);
  // What it should have sent for an earlier call does not come.
  CHECK(node[2].compare(0, sum_of(10, 3)) == Attempt::failed);
  CHECK(node[2].failure().code() == Code::mismatch);
}

TEST_CASE("shm: a rank that has ended a call of no elements is past it, also once it has waited long in a later one") {
  Node node(3);
  node[0].announce(sum_of(0, 4));
  node[0].end_wait();
  CHECK(node[0].compare(2, sum_of(10, 5)) == Attempt::done);
  node[0].end_wait();
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::failed);
  CHECK(node[1].failure().code() == Code::mismatch);
  CHECK(node[1].failure().message().find("but rank 0 is past it, in all-reduce #5") != std::string::npos);
}

TEST_CASE("shm: a rank that waits in a later call without having sent for this one called another") {
  for (std::uint32_t sequence : {std::uint32_t{4}, std::uint32_t{0xffffffff}}) {
    Node node(2);
    CHECK(node[0].compare(1, sum_of(10, sequence + 1)) == Attempt::done);
    CHECK(node[1].compare(0, sum_of(10, sequence)) == Attempt::failed);
    CHECK(node[1].failure().code() == Code::mismatch);
    CHECK(node[1].failure().message().find("but rank 0 is past it, in all-reduce #") != std::string::npos);
    CHECK(node[1].failure().message().ends_with("in the same order, by the same algorithms"));
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

TEST_CASE("shm: another rank's message is a mismatch, wherever it lies, while a third is waited for") {
  const Call other = make_call(Collective::broadcast, DataType::float32, Operation::sum, 2, 10, 4);
  for (int channel = 0; channel < max_channels; ++channel) {
    for (const bool to_all : {false, true}) {
      Node node(3);
      CHECK(node[2].send(channel, std::vector{0, 1}, other, pattern(8, 1), false, to_all) == Attempt::done);
      CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::failed);
      CHECK(node[1].failure().message() ==
            "rank 1 called all-reduce #4 of 10 float32, sum, but rank 2 called broadcast #4 of 10 float32, root 2: "
            "every rank must make the same calls in the same order");
      CHECK(node[1].failure().detail().rank == 2);
      CHECK(node[1].failure().detail().peer == 1);
    }
  }
}

TEST_CASE("shm: another rank's wait is a mismatch while a third is waited for, or one on another node") {
  for (const int waited_for : {0, -1}) {
    Node node(3);
    CHECK(node[2].compare(0, sum_of(11, 4)) == Attempt::done);
    CHECK(node[1].compare(waited_for, sum_of(10, 4)) == Attempt::failed);
    CHECK(node[1].failure().detail().rank == 2);
  }
}

TEST_CASE("shm: who waits for a rank on another node is seen to wait on this one") {
  Node node(2);
  CHECK(node[0].compare(-1, sum_of(11, 4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::failed);
  CHECK(node[1].failure().detail().rank == 0);
}

TEST_CASE("shm: what any rank sent for an earlier call, and nobody will take, is a mismatch") {
  for (std::uint32_t sequence : {std::uint32_t{4}, std::uint32_t{0}}) {
    for (const bool to_all : {false, true}) {
      Node node(3);
      const std::vector<int> others{0, 1};
      CHECK(node[2].send(0, others, sum_of(10, sequence - 1), pattern(8, 1), false, to_all) == Attempt::done);
      CHECK(node[1].compare(0, sum_of(10, sequence)) == Attempt::failed);
      CHECK(node[1].failure().code() == Code::mismatch);
      CHECK(node[1].failure().detail().rank == 2);
    }
  }
}

TEST_CASE("shm: what other ranks sent for this call, a later one or a pair may lie there") {
  for (const Call& lies : {sum_of(10, 4), sum_of(11, 5), sum_of(10, 9), message(3), message(4), message(9)}) {
    for (const bool to_all : {false, true}) {
      if (to_all && collective_of(lies) == Collective::send) continue;
      Node node(3);
      const std::vector<int> to = to_all ? std::vector{0, 1} : std::vector{1};
      CHECK(node[2].send(0, to, lies, pattern(8, 1), false, to_all) == Attempt::done);
      CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::done);
      CHECK(node[1].compare(-1, sum_of(10, 4), false) == Attempt::done);
    }
  }
}

TEST_CASE("shm: a rank that goes on to a later call without having sent for this one called another") {
  for (const bool to_all : {false, true}) {
    Node node(3);
    const std::vector<int> others{0, 1};
    CHECK(node[2].send(0, others, sum_of(10, 5), pattern(8, 1), false, to_all) == Attempt::done);
    CHECK(node[1].compare(2, sum_of(10, 4), false) == Attempt::done);  // it may have had nothing to send
    CHECK(node[1].compare(2, sum_of(10, 4)) == Attempt::failed);
    CHECK(node[1].failure().message().find("but rank 2 is past it, in all-reduce #5") != std::string::npos);
  }
}

TEST_CASE("shm: a collective called before the send that is waited for is a mismatch, wherever its message lies") {
  const std::vector<int> others{0, 2};
  for (int channel = 0; channel < max_channels; ++channel) {
    Node node(3);
    CHECK(node[1].send(channel, others, sum_of(10, 4), pattern(8, 1), false, true) == Attempt::done);
    CHECK(node[0].compare(1, message(7)) == Attempt::failed);
    CHECK(node[0].failure().message() ==
          "rank 0 called send/receive #7 of 1 uint8, but rank 1 called all-reduce #4 of 10 float32, sum: every rank "
          "must make "
          "the same calls in the same order");
  }
}

TEST_CASE("shm: a collective called after the send that is waited for is none") {
  Node node(3);
  const std::vector<int> others{0, 2};
  CHECK(node.send(1, {0}, pattern(1, 1), message(7)) == Attempt::done);
  CHECK(node[1].send(0, others, sum_of(10, 4), pattern(8, 1), false, true) == Attempt::done);
  CHECK(node[0].compare(1, message(7)) == Attempt::done);
  CHECK(node.take(0, 1, pattern(1, 1), message(7)));
}

TEST_CASE("shm: a collective of a rank that has yet to take a pair's message, or of a third, is none") {
  Node node(3);
  const std::vector<int> others{0, 2};
  CHECK(node[1].send(0, others, sum_of(10, 4), pattern(8, 1), false, true) == Attempt::done);
  CHECK(node[0].compare(1, message(7), false) == Attempt::done);
  CHECK(node[0].compare(2, message(7)) == Attempt::done);
  CHECK(node[0].compare(-1, message(7), false) == Attempt::done);
}

TEST_CASE("shm: sends and receives are not compared") {
  Node node(2);
  CHECK(node[0].compare(1, message(4)) == Attempt::done);
  CHECK(node[1].compare(0, sum_of(10, 4)) == Attempt::done);
  CHECK(node[0].compare(1, message(4)) == Attempt::done);
}

}  // namespace paceline
