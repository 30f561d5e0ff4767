#include "bootstrap/inquiry.h"

#include <doctest/doctest.h>

using namespace paceline;

namespace {

using State = Pong::State;

const std::vector<Member> members = {{"node-a", "", "", 100}, {"node-a", "", "", 101}, {"node-b", "", "", 102}};

// Rank 0 has waited for rank 1 in its all-reduce #812.
Suspicion suspicion(Collective which = Collective::all_reduce) {
  return {77, {0, 1, 2}, 0, 1, make_call(which, DataType::float32, Operation::sum, 0, 1024, 812), 5};
}

std::optional<Pong> says(State state, std::uint32_t sequence, int waiting_for = -1) {
  return Pong{1, state, sequence, waiting_for};
}

constexpr char waited[] = "; rank 0 waited 5.0 s for rank 1 in all-reduce #812 of 1024 float32, sum";
constexpr char waited_for_it[] = "; rank 0 waited 5.0 s for it in all-reduce #812 of 1024 float32, sum";

}  // namespace

TEST_CASE("the rank that does not answer is named, with everything that is known") {
  const Status::Detail detail = accuse(suspicion(), {says(State::inside, 812), says(State::inside, 812), {}}, members);
  CHECK(detail.message ==
        std::string("rank 2 (node-b, pid 102) does not answer: its process is stopped or its node unreachable") +
            waited);
  CHECK(detail.code == Code::timeout);
  CHECK(detail.rank == 2);
  CHECK(detail.host == "node-b");
  CHECK(detail.peer == 0);
  CHECK(detail.collective == "all-reduce");
  CHECK(detail.sequence == 812);
}

TEST_CASE("of several silent ranks the one that was waited for is named, else the first") {
  CHECK(accuse(suspicion(), {{}, {}, {}}, members).rank == 1);
  CHECK(accuse(suspicion(), {{}, says(State::inside, 812), {}}, members).rank == 0);
}

TEST_CASE("silence counts more than being behind") {
  CHECK(accuse(suspicion(), {says(State::inside, 812), says(State::outside, 3), {}}, members).rank == 2);
}

TEST_CASE("the rank furthest behind is named, and where it is") {
  const auto of_rank_2 = [](State state, std::uint32_t sequence) {
    return accuse(suspicion(), {says(State::inside, 812), says(State::inside, 812), says(state, sequence)}, members)
        .message;
  };
  CHECK(of_rank_2(State::outside, 811) ==
        std::string("rank 2 (node-b, pid 102) has not entered all-reduce #812; it is outside of any call") + waited);
  CHECK(of_rank_2(State::elsewhere, 811) ==
        std::string("rank 2 (node-b, pid 102) has not entered all-reduce #812; it is inside a call of another "
                    "communicator") +
            waited);
  CHECK(of_rank_2(State::inside, 809) ==
        std::string("rank 2 (node-b, pid 102) has not entered all-reduce #812; it is still inside #809") + waited);
  CHECK(of_rank_2(State::in_messages, 811) ==
        std::string("rank 2 (node-b, pid 102) has not entered all-reduce #812; it is inside a send or receive, after "
                    "#811") +
            waited);
  CHECK(of_rank_2(State::left, 811) ==
        std::string("rank 2 (node-b, pid 102) will not enter all-reduce #812: it left after #811") + waited);
  CHECK(of_rank_2(State::absent, 0).starts_with("rank 2 (node-b, pid 102) has no such communicator"));
}

TEST_CASE("a rank that has completed the call is not behind") {
  const Status::Detail detail =
      accuse(suspicion(), {says(State::inside, 812), says(State::outside, 811), says(State::outside, 812)}, members);
  CHECK(detail.message ==
        std::string("rank 1 (node-a, pid 101) has not entered all-reduce #812; it is outside of any call") +
            waited_for_it);
}

TEST_CASE("of a rank that has ended the call, whichever it was, only that is said") {
  CHECK(accuse(suspicion(), {says(State::inside, 812), says(State::outside, 813), says(State::inside, 812)}, members)
            .message ==
        std::string("rank 1 (node-a, pid 101) has ended #813 and is outside of any call; what all-reduce #812 needs of "
                    "it has not arrived") +
            waited_for_it);
}

TEST_CASE("of a rank inside a send or receive that is said, whatever is waited for") {
  const auto inside = says(State::inside, 812);
  CHECK(accuse(suspicion(), {inside, says(State::in_messages, 812), inside}, members)
            .message.starts_with("rank 1 (node-a, pid 101) has ended #812 and is inside a send or receive; what "));
  CHECK(
      accuse(suspicion(Collective::recv), {inside, says(State::in_messages, 5), inside}, members)
          .message.starts_with("rank 1 (node-a, pid 101) is inside a send or receive, too (collectives so far: 5): "));
}

TEST_CASE("sequence numbers may wrap") {
  Suspicion late = suspicion();
  late.call.sequence = 1;
  CHECK(
      accuse(late, {says(State::inside, 1), says(State::inside, 1), says(State::outside, 0xffffffff)}, members).rank ==
      2);
  late.call.sequence = 0xffffffff;
  CHECK(
      accuse(late, {says(State::inside, 0xffffffff), says(State::inside, 0xffffffff), says(State::inside, 1)}, members)
          .rank == 1);
}

TEST_CASE("where all are inside the call, the one waited for is named") {
  const auto inside = says(State::inside, 812);
  CHECK(accuse(suspicion(), {inside, inside, inside}, members).message ==
        std::string("rank 1 (node-a, pid 101) is inside all-reduce #812 and answers, but has not got on") +
            waited_for_it);
}

TEST_CASE("for a recv the sender is named: sequence numbers of collectives say nothing") {
  const Status::Detail detail = accuse(
      suspicion(Collective::recv), {says(State::inside, 2), says(State::outside, 5), says(State::outside, 1)}, members);
  CHECK(detail.rank == 1);
  CHECK(detail.message.starts_with(
      "rank 1 (node-a, pid 101) has not made the matching call; it is outside of any call; rank 0 waited"));
}

TEST_CASE("in place of a rank that waits for another one that other one is named") {
  const auto waits_for = [](int rank) { return says(State::in_messages, 5, rank); };
  const Status::Detail outside =
      accuse(suspicion(Collective::recv), {waits_for(1), waits_for(2), says(State::outside, 5)}, members);
  CHECK(outside.rank == 2);
  CHECK(
      outside.message.starts_with("rank 2 (node-b, pid 102) has not made the matching call; it is outside of any call; "
                                  "rank 0 waited 5.0 s for rank "
                                  "1, which in turn waits for it, in "));
  const Status::Detail silent = accuse(suspicion(Collective::recv), {{}, waits_for(2), {}}, members);
  CHECK(silent.rank == 2);
  CHECK(silent.message.find("for rank 1, which in turn waits for it, in ") != std::string::npos);
}

TEST_CASE("of ranks that wait for each other the one that was waited for is named") {
  const auto waits_for = [](int rank) { return says(State::in_messages, 5, rank); };
  CHECK(accuse(suspicion(Collective::recv), {waits_for(1), waits_for(2), waits_for(0)}, members).rank == 1);
  CHECK(accuse(suspicion(Collective::recv), {waits_for(1), waits_for(2), waits_for(1)}, members).rank == 1);
}

TEST_CASE("of a row that leads to ranks that wait for each other one of these is named") {
  const auto waits_for = [](int rank) { return says(State::in_messages, 5, rank); };
  const std::vector<Member> four = {members[0], members[1], members[2], {"node-b", "", "", 103}};
  Suspicion stuck = suspicion(Collective::recv);
  stuck.ranks = {0, 1, 2, 3};
  CHECK(accuse(stuck, {waits_for(1), waits_for(2), waits_for(3), waits_for(2)}, four).rank >= 2);
}

TEST_CASE("a rank that has not entered the call for it waits for another one's message is not the one to blame") {
  const std::vector<Member> four = {members[0], members[1], members[2], {"node-b", "", "", 103}};
  Suspicion late = suspicion();
  late.ranks = {0, 1, 2, 3};
  const Status::Detail detail = accuse(late,
                                       {says(State::inside, 812, 1), says(State::inside, 812, 2),
                                        says(State::in_messages, 811, 3), says(State::outside, 811)},
                                       four);
  CHECK(detail.message.starts_with(
      "rank 3 (node-b, pid 103) has not entered all-reduce #812; it is outside of any call; rank 0 waited 5.0 s for "
      "rank 1, which in turn waits for it, in "));
}
