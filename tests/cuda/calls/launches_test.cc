// How exchanges are launched: in which family, by how many blocks and warps.
#include <doctest/doctest.h>

#include <vector>

#include "cuda/calls/exchange.h"
#include "tuning/gpu_setting.h"

namespace paceline::cuda {
namespace {

// Of bytes, in place.
Request all_reduce_in(std::byte* memory) {
  Request request;
  request.which = Collective::all_reduce;
  request.type = DataType::uint8;
  request.send = request.recv = memory;
  return request;
}

}  // namespace

TEST_CASE("reduces of more than two ranks are passed on by strips, if a table says so and their sums are no wider") {
  alignas(16) std::byte memory[32];
  Request request = all_reduce_in(memory);
  request.which = Collective::reduce;
  request.root = 1;
  request.count = 1000;
  const GpuWay passed{.family = GpuFamily::large, .direct = true, .passed = true};
  PassTask task;
  Launch launch;
  const auto goes = [&](int rank, int ranks, const GpuWay& way) {
    return plan_passed_strips(request, rank, ranks, way, task, launch);
  };
  REQUIRE(goes(1, 3, passed));
  CHECK(task.own == memory);
  CHECK(task.target == memory);
  CHECK(task.own_bytes == 1000);
  CHECK(launch.blocks % launch.cluster == 0);
  CHECK(launch.blocks * passing_warps <= strip_lanes(max_gpus));
  REQUIRE(goes(2, 3, passed));
  CHECK(task.own == memory);
  CHECK(task.target == nullptr);
  CHECK(task.messages_to(0) == 1);
  CHECK(task.messages_from(2) == 0);
  request.send = memory + 1;
  REQUIRE(goes(0, max_gpus, passed));
  CHECK(task.alignment == 1);
  CHECK_FALSE(goes(0, 2, passed));
  CHECK_FALSE(goes(0, 3, {.direct = true}));
  CHECK_FALSE(goes(0, 3, {.passed = true}));
  request.op = Operation::premulsum;
  CHECK_FALSE(goes(0, 3, passed));
  request.op = Operation::sum;
  request.type = DataType::float32;
  CHECK(goes(0, 3, passed));
  request.type = DataType::bfloat16;
  CHECK_FALSE(goes(0, 3, passed));
  request.type = DataType::uint8;
  request.count = (128 << 20) + 1;  // longer ones go in chunks
  CHECK_FALSE(goes(0, 3, passed));
  request.count = 1000;
  request.which = Collective::all_reduce;
  CHECK_FALSE(goes(0, 3, passed));
}

TEST_CASE("strips go no further than their offsets, and a message in parts has one for each rank") {
  alignas(16) std::byte memory[16];
  Request request = all_reduce_in(memory);
  const auto launch = [&](std::size_t count, int ranks, const GpuWay& way) {
    Exchanges exchanges;
    request.count = count;
    plan_collective(request, 0, ranks, way, nullptr, exchanges);
    return std::pair{exchanges.launches[0].family, exchanges.count};
  };
  const GpuWay brief;
  const GpuWay relayed{.family = GpuFamily::streaming, .two_steps = true};
  constexpr std::size_t giga = 1 << 30;
  CHECK(launch(giga, 2, brief) == std::pair{Family::streaming, 1});
  CHECK(launch(giga + 1, 2, brief) == std::pair{Family::large, 1});
  CHECK(launch(giga, 4, relayed) == std::pair{Family::streaming, 1});
  CHECK(launch(giga + 1, 4, relayed) == std::pair{Family::large, 2});
  CHECK(launch(giga, 2, relayed) == std::pair{Family::streaming, 1});
  CHECK(launch(giga / 2, 8, brief) == std::pair{Family::streaming, 1});
  CHECK(launch(giga / 2 + 1, 8, brief) == std::pair{Family::large, 1});
  for (const int ranks : {3, max_gpus}) {
    Exchanges exchanges;
    request.count = 4096;
    plan_collective(request, ranks - 1, ranks, relayed, nullptr, exchanges);
    CHECK(exchanges.tasks[0].relays != 0);
    CHECK(exchanges.launches[0].relays);
    request.count = 4095;
    plan_collective(request, ranks - 1, ranks, relayed, nullptr, exchanges);
    CHECK(exchanges.tasks[0].relays == 0);
    CHECK_FALSE(exchanges.launches[0].relays);
    // A broadcast's root has more to keep than it gives to anyone.
    request.which = Collective::broadcast;
    request.count = 1 << 20;
    plan_collective(request, request.root, ranks, relayed, nullptr, exchanges);
    CHECK(exchanges.tasks[0].relays == 0);
    CHECK(exchanges.launches[0].relays);
    request.which = Collective::all_reduce;
  }
}

TEST_CASE("a table's lanes and blocks are kept as far as there are strips for them") {
  alignas(16) std::byte memory[16];
  Request request;
  request.which = Collective::all_gather;
  request.type = DataType::uint8;
  request.send = request.recv = memory;
  const auto launch = [&](std::size_t count, const GpuWay& way) {
    Exchanges exchanges;
    request.count = count;
    plan_collective(request, 0, 2, way, nullptr, exchanges);
    return exchanges.launches[0];
  };
  const Launch few = launch(32 << 10, {.lanes = 4, .blocks = 16});
  CHECK(few.family == Family::brief);
  CHECK(few.blocks == 16);
  CHECK(few.threads == (4 + 1) * 32);
  // More where there must be, to have a place for every strip; and the next family, where there is none.
  const Launch more = launch(64 << 10, {.lanes = 4, .blocks = 16});
  CHECK(more.family == Family::brief);
  CHECK(more.threads == (8 + 1) * 32);
  const Launch next = launch(1 << 20, {.lanes = 4});
  CHECK(next.family == Family::wide);
  CHECK(next.blocks == strip_blocks);
  CHECK(next.threads == (16 + 1) * 32);
  CHECK(launch((1 << 20) + 1, {.lanes = 4}).family == Family::streaming);
  CHECK(launch((512 << 10) + 1, {.lanes = 4, .blocks = 32}).family == Family::streaming);
  CHECK(launch(1 << 20, {.family = GpuFamily::deep, .blocks = 32}).once);
  const Launch rounds = launch((1 << 20) + 1, {.family = GpuFamily::deep, .blocks = 32});
  CHECK(rounds.family == Family::deep);
  CHECK_FALSE(rounds.once);
  const Launch narrow = launch(1000, {.lanes = 4, .blocks = 16});
  CHECK(narrow.blocks == 1);
  CHECK(narrow.threads == (2 + 1) * 32);
  const Launch chunks = launch(64 << 20, {.family = GpuFamily::large, .blocks = 5});
  CHECK(chunks.blocks == 5);
}

TEST_CASE("the last of few rounds has as much as the others") {
  alignas(16) std::byte memory[16];
  Request request = all_reduce_in(memory);
  request.type = DataType::float32;
  const auto lanes = [&](std::size_t bytes, int ranks, const GpuWay& way) {
    Exchanges exchanges;
    request.count = bytes / 4;
    plan_collective(request, 0, ranks, way, nullptr, exchanges);
    const Launch& launch = exchanges.launches[0];
    CHECK(launch.blocks == 32);
    return (launch.threads / 32 - 1) / (ranks - 1);
  };
  CHECK(lanes(768 << 10, 2, {.family = GpuFamily::streaming, .blocks = 32}) == 16);
  CHECK(lanes(640 << 10, 2, {.family = GpuFamily::streaming, .blocks = 32}) == 14);  // three rounds, not two and a half
  CHECK(lanes(32 << 20, 2, {.family = GpuFamily::streaming, .blocks = 32}) == 22);
  CHECK(lanes(1 << 20, 4, {.family = GpuFamily::streaming, .two_steps = true, .blocks = 32}) == 8);
  CHECK(lanes(1280 << 10, 4, {.family = GpuFamily::streaming, .two_steps = true, .blocks = 32}) == 7);
  CHECK(lanes(2 << 20, 4, {.family = GpuFamily::streaming, .two_steps = true, .blocks = 32}) == 8);
  CHECK(lanes(2 << 20, 2, {.family = GpuFamily::streaming, .lanes = 24, .blocks = 32}) == 24);
}

TEST_CASE("blocks of long calls lie in clusters, where they make whole ones") {
  alignas(16) std::byte memory[16];
  Request request = all_reduce_in(memory);
  const auto cluster = [&](std::size_t count, const GpuWay& way) {
    Exchanges exchanges;
    request.count = count;
    plan_collective(request, 0, 2, way, nullptr, exchanges);
    return exchanges.launches[0].cluster;
  };
  CHECK(cluster(2 << 20, {.family = GpuFamily::streaming, .blocks = 32}) == 1);
  CHECK(cluster((2 << 20) + 1, {.family = GpuFamily::streaming, .blocks = 32}) == 4);
  CHECK(cluster(64 << 20, {.family = GpuFamily::streaming, .lanes = 24, .blocks = 24}) == 4);
  CHECK(cluster(64 << 20, {.family = GpuFamily::streaming, .blocks = 22}) == 1);
}

TEST_CASE("what relays goes in rounds, also if it is wide otherwise") {
  alignas(16) std::byte memory[16];
  Request request = all_reduce_in(memory);
  const auto family = [&](std::size_t count, bool two_steps) {
    Exchanges exchanges;
    request.count = count;
    const GpuWay way{.family = GpuFamily::wide, .two_steps = two_steps, .blocks = 32};
    plan_collective(request, 0, 4, way, nullptr, exchanges);
    return exchanges.launches[0].family;
  };
  CHECK(family(256 << 10, false) == Family::wide);
  CHECK(family((256 << 10) + 1, false) == Family::streaming);
  CHECK(family(16 << 10, true) == Family::streaming);
}

TEST_CASE("no more lanes than there are rings for, however many blocks a call may have") {
  alignas(16) std::byte memory[16];
  Request request = all_reduce_in(memory);
  request.count = 8 << 20;
  for (const int ranks : {2, 3, 4, 8})
    for (const std::uint8_t blocks : {16, 32, 64}) {
      Exchanges exchanges;
      plan_collective(request, 0, ranks, {.family = GpuFamily::streaming, .blocks = blocks}, nullptr, exchanges);
      const Launch& launch = exchanges.launches[0];
      CHECK(launch.blocks * (launch.threads / 32 - 1) / (ranks - 1) <= strip_lanes(ranks));
      const int all = strip_warps(streaming_stride, false) / (ranks - 1) * (ranks - 1);
      const int enough = ranks == 2 && blocks == 32 ? 16 : all;
      CHECK((blocks == 64 || launch.threads / 32 - 1 == enough));
    }
}

TEST_CASE("ways that differ are told apart in a call's words") {
  alignas(16) std::byte memory[64];
  Request request = all_reduce_in(memory);
  request.count = 64;
  const auto what = [&](const GpuWay& way) {
    Exchanges exchanges;
    plan_collective(request, 0, 2, way, nullptr, exchanges);
    return exchanges.tasks[0].call_what;
  };
  const auto direct = [&](const GpuWay& way) {
    DirectTask task;
    Launch launch;
    REQUIRE(plan_direct_task(request, 0, 2, way, task, launch));
    return task.call_what;
  };
  const GpuWay window{.family = GpuFamily::brief, .lanes = 2};
  const GpuWay other{.family = GpuFamily::brief, .lanes = 4};
  CHECK(what(window) != what(other));
  constexpr std::uint32_t mask = ((1U << way_bits) - 1) << way_shift;
  CHECK((what(window) & ~mask) == (what(other) & ~mask));
  GpuWay both = window;
  both.direct = true;
  CHECK(direct(both) != what(window));
  DirectTask task;
  Launch launch;
  CHECK_FALSE(plan_direct_task(request, 0, 2, window, task, launch));
}

TEST_CASE("a direct call brings what is done where not all buffers are seen, as far as strips reach") {
  alignas(16) std::byte memory[64];
  Request request = all_reduce_in(memory);
  const GpuWay way{.family = GpuFamily::large, .two_steps = true, .direct = true, .lanes = 3, .blocks = 5};
  for (const int ranks : {2, 3, 4, 8, max_gpus}) {
    DirectTask task;
    Launch launch;
    request.count = 64 << 20;
    REQUIRE(plan_direct_task(request, 1, ranks, way, task, launch));
    CHECK(launch.threads == direct_threads);
    CHECK(task.otherwise.strips != 0);
    CHECK(task.otherwise.rank == 1);
    CHECK(task.otherwise.call_what == task.call_what);
    CHECK(task.otherwise.call_count == task.call_count);
    CHECK((task.otherwise.relays != 0) == (ranks > 2));
    CHECK(task.otherwise.take(0).bytes == (ranks == 2 ? request.count : task.otherwise.own_bytes));
    // Every peer has a warp in a block, beside the one that moves no data.
    CHECK((launch.threads / 32 - 1) / (ranks - 1) >= 1);
    request.count = (std::uint64_t{1} << 30) + 16;
    REQUIRE(plan_direct_task(request, 1, ranks, way, task, launch));
    CHECK(task.otherwise.strips == 0);
  }
}

TEST_CASE("no kernel has more blocks than are allowed, whatever a table says") {
  std::vector<std::byte> dummy(std::size_t{max_gpus} * 8);
  for (const int limit : {1, 7, max_blocks, strip_blocks})
    for (const GpuSetting& setting : shipped_gpu_settings()) {
      GpuTable table;
      table.replace(setting.rows);
      for (const Collective which : {Collective::all_reduce, Collective::broadcast, Collective::all_gather})
        for (std::uint64_t bytes = 16; bytes <= 64 << 20; bytes *= 4) {
          Request request;
          request.which = which;
          request.type = DataType::uint8;
          request.count = bytes;
          const GpuWay way = in_blocks(table.way(which, bytes), limit);
          Exchanges exchanges;
          plan_collective(request, 0, setting.machine.ranks, way, dummy.data(), exchanges);
          for (int i = 0; i < exchanges.count; ++i)
            CHECK(exchanges.launches[static_cast<std::size_t>(i)].blocks <= limit);
          DirectTask task;
          Launch launch;
          if (plan_direct_task(request, 0, setting.machine.ranks, way, task, launch))
            CHECK(launch.blocks <= max_blocks);
        }
    }
}

}  // namespace paceline::cuda
