// Sends and receives on GPUs: how they are cut and launched.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/configuration.h"
#include "cuda/calls/messages.h"

namespace paceline::cuda {
namespace {

// Bytes to or from a peer.
Request message(Collective which, int peer, std::byte* data, std::size_t bytes) {
  Request request;
  request.which = which;
  request.send = request.recv = data;
  request.type = DataType::uint8;
  request.count = bytes;
  request.root = peer;
  return request;
}

}  // namespace

TEST_CASE("messages have their own pieces, and both sides cut them alike") {
  std::vector<std::byte> memory(1 << 20);
  Request send;
  send.which = Collective::send;
  send.send = memory.data();
  send.count = 1000;
  send.type = DataType::float32;
  send.root = 2;
  Request recv;
  recv.which = Collective::recv;
  recv.recv = memory.data() + 8000;
  recv.count = 100000;
  recv.type = DataType::float32;
  recv.root = 0;
  const Request* const both[] = {&send, &recv};
  MessageTask task;
  Launch launch;
  plan_messages(both, 1, 3, strip_blocks, task, launch);
  CHECK(task.give(2).data == memory.data());
  CHECK(task.give(2).bytes == 4000);
  CHECK(task.give(0).bytes == 0);
  CHECK(task.take(0).data == memory.data() + 8000);
  CHECK(task.take(0).bytes == 400000);
  CHECK(task.alignment == 16);

  // The receiver of the first alone.
  Request there = send;
  there.which = Collective::recv;
  there.recv = memory.data();
  there.root = 1;
  const Request* const one[] = {&there};
  MessageTask other;
  plan_messages(one, 2, 3, strip_blocks, other, launch);
  CHECK(other.take_cut(1).chunk == task.give_cut(2).chunk);
  CHECK(other.take_cut(1).lanes == task.give_cut(2).lanes);
  CHECK(other.call_what == task.call_what);
}

TEST_CASE("a message has the same lanes however many blocks there is room for, and rings for all of them") {
  std::vector<std::byte> memory(16);
  const Request request = message(Collective::send, 1, memory.data(), 16 << 20);
  const Request* const one[] = {&request};
  for (const int ranks : {2, 3, 4, 5, 8, 9, max_gpus}) {
    std::uint32_t lanes = 0;
    for (const int blocks : {strip_blocks, max_blocks, 1}) {
      MessageTask task;
      Launch launch;
      plan_messages(one, 0, ranks, blocks, task, launch);
      CHECK(launch.blocks <= blocks);
      CHECK(launch.threads <= (message_warps(paired_stride.strips) + 1) * 32);
      CHECK((lanes == 0 || task.give_cut(1).lanes == lanes));
      lanes = task.give_cut(1).lanes;
    }
    CHECK(lanes == message_lanes);
    const Request there = message(Collective::send, 1, memory.data(), 512 << 10);
    const Request back = message(Collective::recv, 1, memory.data(), 512 << 10);
    const Request* const both[] = {&there, &back};
    MessageTask task;
    Launch launch;
    plan_messages(both, 0, ranks, max_blocks, task, launch);
    CHECK(launch.family == Family::brief);
    CHECK(launch.threads == (message_warps(brief_stride.strips) + 1) * 32);
    CHECK(lanes <= WindowLayout::of(ranks).strip_lanes);
  }
}

TEST_CASE("a message of no elements is one, and announced as such") {
  alignas(16) std::byte place[bytes_for_none];
  const Request send = message(Collective::send, 1, place, 0);
  const Request recv = message(Collective::recv, 2, place, 0);
  const Request* const both[] = {&send, &recv};
  MessageTask task;
  Launch launch;
  plan_messages(both, 0, 3, strip_blocks, task, launch);
  CHECK(task.messages_to(1) == 1);
  CHECK(task.messages_from(2) == 1);
  CHECK(task.give(1).data == place);
  CHECK(task.give(1).bytes == bytes_for_none);
  CHECK(task.whole);
  CHECK(launch.family == Family::brief);
  CHECK(task.count_to(1) == task.count_from(2));
  const Request as_long = message(Collective::send, 1, place, bytes_for_none);
  const Request* const one[] = {&as_long};
  MessageTask other;
  plan_messages(one, 0, 3, strip_blocks, other, launch);
  CHECK(other.count_to(1) != task.count_to(1));
}

TEST_CASE("short messages go by strips, long ones in chunks, and one kernel serves both") {
  std::vector<std::byte> memory(16);
  constexpr std::size_t length = 1 << 10;
  constexpr std::size_t long_one = 64 << 20;
  const Request out = message(Collective::send, 1, memory.data(), length);
  const Request in = message(Collective::recv, 1, memory.data(), length);
  const Request long_out = message(Collective::send, 2, memory.data(), long_one);
  const auto plan = [&](std::vector<const Request*> messages, Launch& launch) {
    MessageTask task;
    plan_messages(messages, 0, 3, strip_blocks, task, launch);
    return task;
  };
  Launch alone;
  Launch together;
  Launch with_long;
  Launch only_long;
  const MessageTask one = plan({&out}, alone);
  const MessageTask two = plan({&out, &in}, together);
  const MessageTask three = plan({&out, &in, &long_out}, with_long);
  const MessageTask four = plan({&long_out}, only_long);
  CHECK(alone.family == Family::brief);
  CHECK(together.family == Family::brief);
  CHECK(with_long.family == Family::large);
  CHECK(only_long.family == Family::large);
  CHECK(one.way_count == 1);
  CHECK(two.way_count == 2);
  CHECK(three.way_count == 2);
  CHECK(four.way_count == 0);
  // A message crosses in the same lanes whatever else is in its group.
  for (const MessageTask* task : {&one, &two, &three}) {
    CHECK(task->give_cut(1).chunk == 0);
    CHECK(task->give_cut(1).lanes == length / strip_bytes);
  }
  CHECK(three.give_cut(2).chunk != 0);
  // Long ones are offered; where the other side sees them, nothing goes through the window, but they are told of.
  CHECK(one.offers_to == 0);
  CHECK(three.offers_to == 1U << 2);
  CHECK(three.offers_from == 0);
  const Request long_in = message(Collective::recv, 2, memory.data(), long_one);
  CHECK(plan({&in, &long_in}, together).offers_from == 1U << 2);
  MessageTask offered = four;
  offered.offers[2] = 1 << 20;
  CHECK(offered.give(2).bytes == 0);
  CHECK(offered.messages_to(2) == 1);
  CHECK(offered.count_to(2) == typed(long_one, static_cast<std::uint8_t>(DataType::uint8)));
  // Block speaks with block, so both sides have all.
  CHECK(only_long.blocks == max_blocks);
  CHECK(with_long.blocks == max_blocks);
  // Each way has a warp at least.
  CHECK(plan({&out, &in}, together).way_count == 2);
  CHECK(alone.blocks * (alone.threads / 32 - 1) >= 1);
  CHECK(together.blocks * (together.threads / 32 - 1) >= 2);
}

TEST_CASE("another call is what is announced of it, or what stands in the place of its announcement") {
  const Announcement mine{5, 9, 1024};
  CHECK_FALSE(differs(mine, mine));
  CHECK(differs(mine, {5, 9, 512}));
  CHECK(differs(mine, {5, 8, 1024}));
  // Nothing yet, or what was there before.
  CHECK_FALSE(differs(mine, {}));
  CHECK_FALSE(differs({5 + announcements, 9, 512}, mine));
  // Not even what looks the same: nobody is so far ahead who has given this one.
  CHECK(differs(mine, {5 + announcements, 9, 1024}));
  const Announcement last{UINT32_MAX, 9, 1024};
  CHECK(differs(last, {UINT32_MAX + announcements, 9, 1024}));
  CHECK_FALSE(differs({UINT32_MAX + announcements, 9, 1024}, last));
}

TEST_CASE("each message of the largest group has a warp in the fewest blocks that can be set") {
  std::vector<std::byte> memory(16);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 10, std::size_t{4} << 20}) {
    std::vector<Request> requests;
    for (int peer = 1; peer < max_gpus; ++peer)
      for (const Collective which : {Collective::send, Collective::recv})
        requests.push_back(message(which, peer, memory.data(), bytes));
    std::vector<const Request*> group(requests.size());
    std::ranges::transform(requests, group.begin(), [](const Request& request) { return &request; });
    MessageTask task;
    Launch launch;
    plan_messages(group, 0, max_gpus, least_gpu_blocks, task, launch);
    CHECK(launch.blocks <= least_gpu_blocks);
    CHECK(launch.blocks * (launch.threads / 32 - 1) >= task.way_count);
  }
}

}  // namespace paceline::cuda
