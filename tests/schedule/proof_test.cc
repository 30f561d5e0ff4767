// The proof can fail: schedules broken in one way each, and what it says of them.
#include "schedule/proof.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace paceline {
namespace {

constexpr Buffer in = Buffer::input;
constexpr Buffer out = Buffer::output;
constexpr Buffer scratch = Buffer::scratch;

Schedule of(Collective collective, int ranks, std::size_t count, bool in_place = false, std::size_t chunk = 100) {
  return Schedule({.collective = collective, .ranks = ranks, .count = count, .in_place = in_place}, {.chunk = chunk});
}

std::string complaint(Schedule& schedule) { return prove(schedule).message(); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#define CHECK_COMPLAINT(schedule, part)           \
  do {                                            \
    const std::string said = complaint(schedule); \
    INFO(said);                                   \
    CHECK(has(said, part));                       \
  } while (false)

Step send(Region source, std::uint8_t channel = 0) {
  Step step;
  step.action = Action::send;
  step.channel = channel;
  step.source = source;
  return step;
}

Step recv(Region target, std::uint8_t channel = 0) {
  Step step;
  step.action = Action::recv;
  step.channel = channel;
  step.target = target;
  return step;
}

Step copy(Region source, Region target) {
  Step step;
  step.action = Action::copy;
  step.source = source;
  step.target = target;
  return step;
}

Step fold(Region target, Region source, int own) {
  Step step;
  step.action = Action::recv_reduce;
  step.source = source;
  step.target = target;
  step.own = static_cast<std::int16_t>(own);
  return step;
}

void append(Schedule& schedule, int rank, const Step& step, std::vector<int> peers) {
  schedule.append(rank, step, peers);
}

}  // namespace

TEST_CASE("a right schedule passes") {
  Schedule schedule = of(Collective::all_reduce, 2, 5);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {1, in, 0}}, std::vector<Place>{{0, out, 0}, {1, out, 0}}, 5);
  CHECK(prove(schedule).ok());
}

TEST_CASE("an empty schedule is right only for no elements") {
  Schedule nothing = of(Collective::broadcast, 2, 0);
  CHECK(prove(nothing).ok());
  Schedule something = of(Collective::broadcast, 2, 3);
  CHECK(complaint(something) == "rank 0 ends without all of output [0, 3)");
}

TEST_CASE("one rank's part is no schedule to prove") {
  Schedule part({.collective = Collective::broadcast, .ranks = 2, .count = 1}, {}, 1);
  CHECK(complaint(part) == "only the steps of rank 1 are there to prove");
}

TEST_CASE("a rank that gets nothing, a part, or another's data is named") {
  Schedule short_by_one = of(Collective::broadcast, 2, 3);
  short_by_one.move({0, in, 0}, {0, out, 0}, 3);
  short_by_one.move({0, in, 0}, {1, out, 0}, 2);
  CHECK(complaint(short_by_one) == "rank 1 ends without all of output [0, 3)");

  Schedule shifted = of(Collective::broadcast, 2, 3);
  shifted.move({0, in, 0}, {0, out, 0}, 3);
  shifted.move({0, in, 0}, {1, out, 0}, 3);
  shifted.round();
  shifted.move({0, in, 0}, {1, out, 1}, 1);
  CHECK(complaint(shifted) == "rank 1 ends with element 0 of rank 0 in output[1], not with element 1 of rank 0");

  Schedule swapped = of(Collective::gather, 2, 1);
  swapped.move({0, in, 0}, {0, out, 1}, 1);
  swapped.move({1, in, 0}, {0, out, 0}, 1);
  CHECK(complaint(swapped) == "rank 0 ends with element 0 of rank 1 in output[0], not with element 0 of rank 0");
}

TEST_CASE("a contribution that is missing is counted") {
  Schedule schedule = of(Collective::reduce, 3, 2);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {2, in, 0}}, Place{0, out, 0}, 2);
  CHECK(complaint(schedule) ==
        "rank 0 ends with element 0 folded over 2 of 3 ranks in output[0], not with element 0 folded over all ranks");
}

TEST_CASE("a contribution that is folded twice is named") {
  Schedule schedule = of(Collective::all_reduce, 2, 1);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {1, in, 0}}, Place{0, out, 0}, 1);
  schedule.round();
  schedule.reduce(std::vector<Place>{{0, out, 0}, {1, in, 0}}, Place{1, out, 0}, 1);
  CHECK(complaint(schedule) ==
        "rank 1, step 1 (recv_reduce from 0, channel 0): it folds the contribution of rank 1 twice");
}

TEST_CASE("different elements must not be folded") {
  Schedule schedule = of(Collective::all_reduce, 2, 2);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {1, in, 1}}, Place{0, out, 0}, 1);
  CHECK_COMPLAINT(schedule, "it folds element 0 of rank 0 with element 1 of rank 1");
}

TEST_CASE("two fold orders of an all-reduce are two results") {
  // Rank 0 has (0 + 1) + 2, the others 0 + (1 + 2).
  Schedule schedule = of(Collective::all_reduce, 3, 4);
  for (int rank = 0; rank < 3; ++rank) schedule.need_scratch(rank, 4);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {1, in, 0}}, Place{0, scratch, 0}, 4);
  schedule.reduce(std::vector<Place>{{1, in, 0}, {2, in, 0}}, Place{1, scratch, 0}, 4);
  schedule.round();
  schedule.reduce(std::vector<Place>{{0, scratch, 0}, {2, in, 0}}, Place{0, out, 0}, 4);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {1, scratch, 0}}, std::vector<Place>{{1, out, 0}, {2, out, 0}}, 4);
  CHECK(complaint(schedule) == "ranks 0 and 1 fold element 0 in different orders");
}

TEST_CASE("operands out of the order of ranks") {
  Schedule schedule = of(Collective::reduce, 2, 1);
  append(schedule, 1, send({in, 0, 1}), {0});
  append(schedule, 0, fold({out, 0, 1}, {in, 0, 1}, 1), {1});
  CHECK_COMPLAINT(schedule,
                  "rank 0, step 0 (recv_reduce from 1, channel 0): the operands are not in the order of ranks");
}

TEST_CASE("steps that wait for each other in a circle") {
  Schedule schedule = of(Collective::all_reduce, 2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    append(schedule, rank, recv({out, 0, 1}), {1 - rank});
    append(schedule, rank, send({in, 0, 1}), {1 - rank});
  }
  CHECK(complaint(schedule) ==
        "rank 0, step 0 (recv from 1, channel 0): it waits for ever, and so does rank 1, step 0 (recv from 0, channel "
        "0)");
}

TEST_CASE("more messages under way than the capacity wait for their receivers") {
  const auto both_send_first = [](int messages) {
    Schedule schedule = of(Collective::all_to_all, 2, 20, false, 1);
    for (int rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(messages); ++i)
        append(schedule, rank, send({in, 20 * static_cast<std::size_t>(1 - rank) + i, 1}), {1 - rank});
      for (std::size_t i = 0; i < static_cast<std::size_t>(messages); ++i)
        append(schedule, rank, recv({out, 20 * static_cast<std::size_t>(1 - rank) + i, 1}), {1 - rank});
    }
    return complaint(schedule);
  };
  CHECK(both_send_first(capacity(2)) == "rank 0 ends without all of output [0, 20)");
  CHECK(both_send_first(capacity(2) + 1) ==
        "rank 0, step 8 (send to 1, channel 0): it waits for ever, with 8 messages under way");
}

TEST_CASE("a slot is free only when those before it are") {
  // Rank 1 takes its message last, rank 2 takes 8 more: as many as a ring of 8 slots holds, less one.
  const auto sends = [](std::size_t more) {
    Schedule schedule = of(Collective::broadcast, 3, 20, false, 1);
    append(schedule, 0, send({in, 0, 1}), {1});
    for (std::size_t i = 0; i < more; ++i) append(schedule, 0, send({in, i, 1}), {2});
    for (std::size_t i = 0; i < more; ++i) append(schedule, 2, recv({out, i, 1}), {0});
    append(schedule, 2, send({out, 0, 1}), {1});
    append(schedule, 1, recv({out, 0, 1}), {2});
    append(schedule, 1, recv({out, 0, 1}), {0});
    return complaint(schedule);
  };
  CHECK(has(sends(7), "ends without all of output"));
  CHECK(has(sends(8), "rank 0, step 8 (send to 2, channel 0): it waits for ever"));
}

TEST_CASE("a message that never comes") {
  Schedule schedule = of(Collective::broadcast, 2, 1);
  append(schedule, 1, recv({out, 0, 1}), {0});
  CHECK(complaint(schedule) == "rank 1, step 0 (recv from 0, channel 0): it waits for ever, rank 0 sends no more");
}

TEST_CASE("a fold takes no message before all are there") {
  // Rank 0 sends what rank 1 needs only after a fold that needs rank 1.
  Schedule schedule = of(Collective::all_reduce, 3, 1);
  append(schedule, 2, send({in, 0, 1}), {0});
  append(schedule, 0, fold({out, 0, 1}, {in, 0, 1}, 0), {1, 2});
  append(schedule, 0, send({out, 0, 1}), {1});
  append(schedule, 1, recv({out, 0, 1}), {0});
  append(schedule, 1, send({in, 0, 1}), {0});
  CHECK(complaint(schedule) ==
        "rank 0, step 0 (recv_reduce from 1,2, channel 0): it waits for ever, and so does "
        "rank 1, step 0 (recv from 0, channel 0)");
}

TEST_CASE("a message that stays behind") {
  Schedule schedule = of(Collective::broadcast, 2, 1);
  append(schedule, 0, send({in, 0, 1}), {1});
  CHECK(complaint(schedule) == "rank 1 never takes 1 messages of rank 0 on channel 0");
}

TEST_CASE("lengths that differ on the two sides of a message") {
  Schedule schedule = of(Collective::broadcast, 2, 3);
  append(schedule, 0, send({in, 0, 3}), {1});
  append(schedule, 1, recv({out, 0, 2}), {0});
  CHECK(complaint(schedule) == "rank 1, step 0 (recv from 0, channel 0): the message of rank 0 has 3 elements, not 2");
}

TEST_CASE("a message to all that is awaited as another, and the other way round") {
  for (const bool sent_so : {true, false}) {
    Schedule schedule = of(Collective::broadcast, 3, 2);
    Step give = send({in, 0, 2});
    Step take = recv({out, 0, 2});
    give.to_all = sent_so;
    take.to_all = !sent_so;
    append(schedule, 0, give, {1, 2});
    append(schedule, 0, copy({in, 0, 2}, {out, 0, 2}), {});
    append(schedule, 1, take, {0});
    append(schedule, 2, take, {0});
    CHECK_COMPLAINT(schedule, sent_so ? "the message of rank 0 is to all ranks, unlike what is awaited"
                                      : "the message of rank 0 is not to all ranks, unlike what is awaited");
  }
  Schedule some = of(Collective::broadcast, 4, 2);
  Step give = send({in, 0, 2});
  give.to_all = true;
  append(some, 0, give, {1, 2});
  CHECK_COMPLAINT(some, "a message to all ranks is for 2 of 3");
}

TEST_CASE("what a step reads and writes is one place, or two that do not overlap") {
  const auto shifted = [](std::size_t by, bool folds) {
    Schedule schedule = of(folds ? Collective::reduce : Collective::broadcast, 2, 8);
    schedule.need_scratch(1, 32);
    if (folds) {
      append(schedule, 1, copy({in, 0, 8}, {scratch, 8, 8}), {});
      append(schedule, 0, send({in, 0, 8}), {1});
      append(schedule, 1, fold({scratch, 8 + by, 8}, {scratch, 8, 8}, 1), {0});
      append(schedule, 1, send({scratch, 8 + by, 8}), {0});
      append(schedule, 0, recv({out, 0, 8}), {1});
    } else {
      schedule.move({0, in, 0}, {0, out, 0}, 8);
      schedule.move({0, in, 0}, {1, scratch, 8}, 8);
      schedule.round();
      schedule.move({1, scratch, 8}, {1, scratch, 8 + by}, 8);
      schedule.round();
      schedule.move({1, scratch, 8 + by}, {1, out, 0}, 8);
    }
    return complaint(schedule);
  };
  for (const bool folds : {false, true}) {
    for (const std::size_t by : {1, 4, 7}) CHECK(has(shifted(by, folds), "what it reads and what it writes overlap"));
    for (const std::size_t by : {0, 8}) CHECK(shifted(by, folds) == "no error");
  }
  Schedule in_place = of(Collective::all_gather, 2, 2, true);
  append(in_place, 0, copy({in, 0, 2}, {out, 1, 2}), {});
  CHECK_COMPLAINT(in_place, "what it reads and what it writes overlap");
}

TEST_CASE("regions outside of their buffers") {
  Schedule source = of(Collective::broadcast, 2, 3);
  source.move({0, in, 1}, {1, out, 0}, 3);
  CHECK_COMPLAINT(source,
                  "rank 0, step 0 (send to 1, channel 0): elements [1, 4) lie outside of the input of 3 elements");

  Schedule target = of(Collective::broadcast, 2, 3);
  target.move({0, in, 0}, {1, out, 2}, 2);
  CHECK_COMPLAINT(target, "elements [2, 4) lie outside of the output of 3 elements");

  Schedule unasked = of(Collective::broadcast, 2, 3);
  unasked.move({0, in, 0}, {1, scratch, 0}, 2);
  CHECK_COMPLAINT(unasked, "elements [0, 2) lie outside of the scratch of 0 elements");

  Schedule absent = of(Collective::reduce, 2, 3);
  absent.move({0, in, 0}, {1, out, 0}, 3);
  CHECK_COMPLAINT(absent, "lie outside of the output of 0 elements");

  Schedule enormous = of(Collective::broadcast, 2, 3, false, SIZE_MAX);
  append(enormous, 0, send({in, SIZE_MAX, 2}), {1});
  CHECK_COMPLAINT(enormous, "lie outside of the input of 3 elements");
}

TEST_CASE("a step that reads what nothing has written") {
  Schedule schedule = of(Collective::broadcast, 2, 3);
  schedule.move({0, out, 0}, {1, out, 0}, 3);
  CHECK(complaint(schedule) == "rank 0, step 0 (send to 1, channel 0): it reads what nothing has written");

  Schedule hole = of(Collective::broadcast, 2, 3);
  hole.move({0, in, 0}, {0, out, 0}, 1);
  hole.move({0, in, 2}, {0, out, 2}, 1);
  hole.round();
  hole.move({0, out, 0}, {1, out, 0}, 3);
  CHECK_COMPLAINT(hole, "rank 0, step 2 (send to 1, channel 0): it reads what nothing has written");
}

TEST_CASE("a step longer than the chunk") {
  Schedule schedule = of(Collective::broadcast, 2, 3, false, 2);
  append(schedule, 0, send({in, 0, 3}), {1});
  CHECK_COMPLAINT(schedule, "3 elements are more than the chunk of 2");
}

TEST_CASE("channels that touch the same data, one of them writing") {
  const auto with = [](std::size_t offset_of_second, Buffer source) {
    Schedule schedule = of(Collective::broadcast, 2, 4);
    schedule.move({0, in, 0}, {1, out, 0}, 2, 0);
    schedule.move({0, source, 0}, {1, out, offset_of_second}, 2, 1);
    return complaint(schedule);
  };
  CHECK(with(1, in) == "rank 1: channels 0 and 1 touch the same data, and nothing orders them");
  CHECK(has(with(2, in), "ends without all of output"));  // both read the input: that is allowed

  Schedule reads_what_other_writes = of(Collective::broadcast, 2, 4);
  reads_what_other_writes.move({0, in, 0}, {1, out, 0}, 4, 0);
  reads_what_other_writes.round();
  reads_what_other_writes.move({1, out, 3}, {0, out, 3}, 1, 1);
  CHECK_COMPLAINT(reads_what_other_writes, "rank 1: channels 0 and 1 touch the same data");

  Schedule in_place = of(Collective::all_reduce, 2, 4, true);
  in_place.move({0, in, 0}, {1, out, 0}, 2, 0);
  in_place.move({1, in, 0}, {0, out, 2}, 2, 1);
  CHECK_COMPLAINT(in_place, "rank 1: channels 0 and 1 touch the same data");
}

TEST_CASE("the input is not written") {
  Schedule schedule = of(Collective::all_reduce, 2, 1);
  schedule.move({0, in, 0}, {1, in, 0}, 1);
  CHECK_COMPLAINT(schedule, "the input is written");
}

TEST_CASE("input that the output has overwritten, in place") {
  const auto write = [](bool in_place) {
    Schedule schedule = of(Collective::all_to_all, 2, 1, in_place);
    for (int rank = 0; rank < 2; ++rank) {
      const auto other = static_cast<std::size_t>(1 - rank);
      schedule.move({rank, in, 1 - other}, {rank, out, 1 - other}, 1);
    }
    schedule.move({0, in, 1}, {1, out, 0}, 1);
    schedule.round();
    schedule.move({1, in, 0}, {0, out, 1}, 1);
    return complaint(schedule);
  };
  CHECK(write(false) == "no error");
  CHECK(write(true) == "rank 1, step 1 (send to 0, channel 0): it reads input that has been overwritten");
}

TEST_CASE("a reduction reads its own contribution as input, not as output") {
  Schedule schedule = of(Collective::all_reduce, 2, 1, true);
  schedule.reduce(std::vector<Place>{{0, out, 0}, {1, in, 0}}, std::vector<Place>{{0, out, 0}, {1, out, 0}}, 1);
  CHECK_COMPLAINT(schedule, "rank 0, step 0 (send to 1, channel 0): it reads the rank's input as output");
}

TEST_CASE("steps that are nonsense") {
  const auto said = [](const Step& step, std::vector<int> peers) {
    Schedule schedule = of(Collective::broadcast, 3, 3);
    schedule.append(0, step, peers);
    return complaint(schedule);
  };
  CHECK(has(said(send({in, 0, 1}), {}), "the message is for nobody"));
  CHECK(has(said(send({in, 0, 1}), {3}), "there is no rank 3"));
  CHECK(has(said(send({in, 0, 1}), {-1}), "there is no rank -1"));
  CHECK(has(said(send({in, 0, 1}), {0}), "a rank sends to itself"));
  CHECK(has(said(send({in, 0, 1}), {1, 2, 1}), "rank 1 gets the message twice"));
  CHECK(has(said(send({in, 0, 0}), {1}), "the step moves nothing"));
  CHECK(has(said(send({in, 0, 1}, 7), {1}), "there are only 2 channels"));
  CHECK(has(said(recv({out, 0, 1}), {1, 2}), "a message comes from one rank"));
  CHECK(has(said(fold({out, 0, 1}, {}, -1), {}), "there is nothing to fold"));
  CHECK(has(said(fold({out, 0, 1}, {in, 0, 1}, 2), {1}), "the local operand comes after the last"));
  CHECK(has(said(copy({in, 0, 2}, {out, 0, 1}), {}), "the lengths of source and target differ"));
}

TEST_CASE("a barrier that lets a rank go too early") {
  Schedule schedule = of(Collective::barrier, 3, 0, false, 1);
  for (int rank = 0; rank < 3; ++rank) schedule.need_scratch(rank, 2);
  schedule.move({1, scratch, 0}, {0, scratch, 1}, 1);
  schedule.move({2, scratch, 0}, {0, scratch, 1}, 1);
  schedule.move({0, scratch, 0}, {1, scratch, 1}, 1);  // in the same round: rank 0 has heard of nobody yet
  schedule.round();
  schedule.move({0, scratch, 0}, {2, scratch, 1}, 1);
  CHECK(complaint(schedule) == "rank 1 leaves the barrier without having heard of rank 2");
}

}  // namespace paceline
