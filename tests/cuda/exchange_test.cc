// Exchanges are run here, of bytes, by a stand-in for the kernels: each rank's pieces are copied to the peer that takes
// them.
#include "cuda/exchange.h"

#include <doctest/doctest.h>

#include <numeric>
#include <optional>
#include <vector>

#include "cuda/case.h"
#include "tuning/gpu_setting.h"

namespace paceline::cuda {
namespace {

using Bytes = std::vector<std::byte>;

std::byte value(int rank, std::size_t index) {
  return static_cast<std::byte>((rank + 1) * 7 + index * 3 + index / 251);
}

// All ranks' memory and requests for one collective of bytes.
class Run {
 public:
  // By the way given, else as the rules say.
  explicit Run(const Case& c, const std::optional<GpuWay>& way = std::nullopt)
      : c_(c),
        way_(way ? *way : GpuTable::rules(c.ranks).way(c.which, c.count)),
        inputs_(static_cast<std::size_t>(c.ranks)),
        outputs_(inputs_.size()),
        folded_(inputs_.size()) {
    for (int rank = 0; rank < c.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      Bytes input(input_elements(problem_of(c), rank));
      for (std::size_t i = 0; i < input.size(); ++i) input[i] = value(rank, i);
      original_.push_back(input);
      const std::size_t output = output_elements(problem_of(c), rank);
      Request request;
      request.which = c.which;
      request.count = c.count;
      request.root = c.root;
      request.type = DataType::uint8;
      if (c.in_place) {
        // One buffer holds both, as paceline.h lays them out.
        const std::ptrdiff_t offset = input_in_output(problem_of(c), rank);
        outputs_[r].resize(std::max(input.size(), output));
        std::byte* const buffer = outputs_[r].data();
        request.send = buffer + std::max<std::ptrdiff_t>(offset, 0);
        request.recv = buffer + std::max<std::ptrdiff_t>(-offset, 0);
        std::copy(input.begin(), input.end(), const_cast<std::byte*>(request.send));
      } else {
        inputs_[r] = input;
        outputs_[r].resize(output);
        request.send = inputs_[r].data();
        request.recv = outputs_[r].data();
      }
      requests_.push_back(request);
    }
  }

  void run() {
    std::vector<Exchanges> plans(requests_.size());
    for (int rank = 0; rank < c_.ranks; ++rank)
      plan_collective(requests_[static_cast<std::size_t>(rank)], rank, c_.ranks, way_, nullptr,
                      plans[static_cast<std::size_t>(rank)]);
    for (int step = 0; step < plans[0].count; ++step) {
      for (const Exchanges& plan : plans) REQUIRE(plan.count == plans[0].count);
      exchange(plans, static_cast<std::size_t>(step));
    }
  }

  void check() const {
    for (int rank = 0; rank < c_.ranks; ++rank) {
      const std::size_t length = output_elements(problem_of(c_), rank);
      const std::byte* const found = requests_[static_cast<std::size_t>(rank)].recv;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < length; ++i) wrong += found[i] != expected_at(rank, i) ? 1 : 0;
      INFO(name(c_.which), " of ", c_.count, " bytes, rank ", rank, " of ", c_.ranks, ", root ", c_.root,
           c_.in_place ? ", in place" : "");
      REQUIRE(wrong == 0);
    }
  }

 private:
  void exchange(const std::vector<Exchanges>& plans, std::size_t step) {
    const auto task = [&](int rank) -> const Task& { return plans[static_cast<std::size_t>(rank)].tasks[step]; };
    // What is given is read before anything is written.
    std::vector<std::vector<Bytes>> sent(plans.size(), std::vector<Bytes>(plans.size()));
    std::vector<Bytes> own(plans.size());
    for (int from = 0; from < c_.ranks; ++from) {
      const auto f = static_cast<std::size_t>(from);
      REQUIRE(plans[f].launches[step].family == plans[0].launches[step].family);
      REQUIRE(plans[f].launches[step].blocks == plans[0].launches[step].blocks);
      REQUIRE(plans[f].launches[step].threads == plans[0].launches[step].threads);
      REQUIRE(task(from).call_what == task(0).call_what);
      check_launch(plans[f].launches[step], task(from));
      REQUIRE(task(from).cut.chunk == task(0).cut.chunk);
      REQUIRE(task(from).cut.lanes == task(0).cut.lanes);
      own[f].assign(task(from).own, task(from).own + task(from).own_bytes);
      for (int to = 0; to < c_.ranks; ++to) {
        const Piece piece = task(from).give(to);
        REQUIRE(piece.bytes == task(to).take(from).bytes);
        sent[f][static_cast<std::size_t>(to)].assign(piece.data, piece.data + piece.bytes);
      }
    }
    for (int to = 0; to < c_.ranks; ++to) {
      const Task& mine = task(to);
      const Bytes& contribution = own[static_cast<std::size_t>(to)];
      if (mine.folds) {
        Bytes& folded = folded_[static_cast<std::size_t>(to)];
        folded.resize(contribution.size());
        for (std::size_t i = 0; i < contribution.size(); ++i) {
          auto sum = static_cast<unsigned>(contribution[i]);
          for (int from = 0; from < c_.ranks; ++from)
            if (from != to)
              sum += static_cast<unsigned>(sent[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)][i]);
          folded[i] = static_cast<std::byte>(sum);
        }
        if (mine.target != nullptr) std::copy(folded.begin(), folded.end(), mine.target);
        continue;
      }
      std::copy(contribution.begin(), contribution.end(), mine.target);
      for (int from = 0; from < c_.ranks; ++from) {
        const Bytes& message = sent[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
        std::copy(message.begin(), message.end(), mine.take(from).data);
      }
    }
    for (int from = 0; from < c_.ranks; ++from)
      for (int to = 0; to < c_.ranks; ++to) relay(task(from), task(to));
  }

  // What kernels take for granted.
  static void check_launch(const Launch& launch, const Task& task) {
    REQUIRE(launch.blocks >= 1);
    REQUIRE(launch.blocks <= (launch.family == Family::large ? max_blocks : strip_blocks));
    const bool relays = task.relays != 0 || task.gathered.ranks != 0;
    if (launch.family == Family::large) {
      REQUIRE_FALSE(relays);
      REQUIRE(task.cut.chunk % 16 == 0);
      REQUIRE(task.cut.chunk >= 16);
      REQUIRE(task.cut.chunk <= task.layout.chunk_slot);
      REQUIRE(task.cut.lanes >= 1);
      REQUIRE(task.cut.lanes <= static_cast<std::uint32_t>(launch.blocks) * lanes_in_block);
      return;
    }
    REQUIRE(launch.threads % 32 == 0);
    // A lane has a warp for each peer; and there is one more, which moves no data.
    const int warps = launch.threads / 32 - 1;
    const Stride deep = launch.once ? deep_once_stride : deep_stride;
    const Stride stride = launch.family == Family::brief  ? brief_stride
                          : launch.family == Family::wide ? wide_stride
                          : launch.family == Family::deep ? deep
                                                          : streaming_stride;
    REQUIRE(launch.once == stride.once);
    REQUIRE_FALSE((launch.once && relays));
    REQUIRE_FALSE((launch.family == Family::deep && (relays || task.folds)));
    REQUIRE(warps >= task.ranks - 1);
    REQUIRE(warps % (task.ranks - 1) == 0);
    REQUIRE(warps <= strip_warps(stride, task.ranks == 2));
    const int lanes = launch.blocks * warps / (task.ranks - 1);
    REQUIRE(lanes <= strip_lanes(task.ranks));
    // What has no loop must have a place for every strip.
    if (stride.once) REQUIRE(static_cast<std::uint32_t>(lanes * stride.strips) >= task.strips);
  }

  // What a rank has folded, or taken from the root, goes on to another.
  void relay(const Task& giver, const Task& taker) {
    const Piece here = taker.gathered.of(giver.rank);
    REQUIRE(giver.messages_to(taker.rank) == taker.messages_from(giver.rank));
    if ((giver.relays >> taker.rank & 1) == 0) {
      REQUIRE(here.bytes == 0);
      return;
    }
    const Piece there = giver.folds ? Piece{folded_[giver.rank].data(), giver.own_bytes} : giver.take(c_.root);
    REQUIRE(here.bytes == there.bytes);
    std::copy(there.data, there.data + there.bytes, here.data);
  }

  [[nodiscard]] std::byte expected_at(int rank, std::size_t index) const {
    const auto input = [this](int from, std::size_t i) { return original_[static_cast<std::size_t>(from)][i]; };
    return expected(c_, rank, index, input, [&](std::size_t i) {
      unsigned all = 0;
      for (int from = 0; from < c_.ranks; ++from) all += static_cast<unsigned>(input(from, i));
      return static_cast<std::byte>(all);
    });
  }

  Case c_;
  GpuWay way_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> outputs_;
  std::vector<Bytes> original_;
  std::vector<Bytes> folded_;
  std::vector<Request> requests_;
};

}  // namespace

TEST_CASE("every collective is one exchange or two, whose pieces fit together and end where they belong") {
  const Collective collectives[] = {Collective::all_reduce, Collective::reduce,    Collective::reduce_scatter,
                                    Collective::broadcast,  Collective::scatter,   Collective::gather,
                                    Collective::all_gather, Collective::all_to_all};
  for (const Collective which : collectives)
    for (const int ranks : {1, 2, 3, 4, 8, 16})
      for (const std::size_t count : {1, 17, 4096, 300001, 700000})
        for (const int root : {0, ranks / 2, ranks - 1})
          for (const bool in_place : {false, true}) {
            if ((!is_rooted(which) && root != 0) || (count > 4096 && ranks > 8)) continue;
            Run run({which, ranks, root, count, in_place});
            run.run();
            run.check();
          }
}

TEST_CASE("long collectives too, in one kernel or in two") {
  for (const Collective which : {Collective::all_reduce, Collective::broadcast, Collective::reduce})
    for (const auto& [ranks, count] : {std::pair{2, (5 << 20) + 3}, {2, 20 << 20}, {3, (9 << 20) + 1}, {4, 20 << 20}}) {
      Run run({which, ranks, ranks - 1, static_cast<std::size_t>(count), false});
      run.run();
      run.check();
    }
}

TEST_CASE("whatever a table says, the result is right") {
  std::vector<GpuWay> ways;
  for (const GpuFamily family :
       {GpuFamily::brief, GpuFamily::wide, GpuFamily::streaming, GpuFamily::deep, GpuFamily::large})
    for (const bool two_steps : {false, true})
      for (const int most : {0, 1, 7, 255})
        ways.push_back({.family = family,
                        .two_steps = two_steps,
                        .direct = true,
                        .lanes = static_cast<std::uint8_t>(most),
                        .blocks = static_cast<std::uint8_t>(255 - most),
                        .chunk = most == 7 ? UINT32_MAX : static_cast<std::uint32_t>(most)});
  for (const GpuWay& way : ways)
    for (const Collective which :
         {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter, Collective::broadcast,
          Collective::scatter, Collective::gather, Collective::all_gather, Collective::all_to_all})
      for (const auto& [ranks, count] : {std::pair{1, 100}, {2, 1}, {2, 70001}, {3, 4095}, {3, 70001}, {16, 4096}})
        for (const bool in_place : {false, true}) {
          CAPTURE(static_cast<int>(way.family));
          CAPTURE(way.two_steps);
          CAPTURE(static_cast<int>(way.lanes));
          Run run({which, ranks, is_rooted(which) ? ranks - 1 : 0, static_cast<std::size_t>(count), in_place}, way);
          run.run();
          run.check();
        }
}

// Of bytes, in place.
Request all_reduce_in(std::byte* memory) {
  Request request;
  request.which = Collective::all_reduce;
  request.type = DataType::uint8;
  request.send = request.recv = memory;
  return request;
}

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
  for (const int ranks : {3, max_gpus}) {
    Exchanges exchanges;
    request.count = 4096;
    plan_collective(request, ranks - 1, ranks, relayed, nullptr, exchanges);
    CHECK(exchanges.tasks[0].relays != 0);
    request.count = 4095;
    plan_collective(request, ranks - 1, ranks, relayed, nullptr, exchanges);
    CHECK(exchanges.tasks[0].relays == 0);
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
      CHECK((blocks == 64 ||
             launch.threads / 32 - 1 == strip_warps(streaming_stride, false) / (ranks - 1) * (ranks - 1)));
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

TEST_CASE("a barrier takes a word from everyone") {
  std::vector<std::byte> dummy(8 * max_gpus);
  Request request;
  request.which = Collective::barrier;
  Exchanges exchanges;
  plan_collective(request, 1, 3, GpuWay{.family = GpuFamily::large, .two_steps = true}, dummy.data(), exchanges);
  REQUIRE(exchanges.count == 1);
  CHECK(exchanges.launches[0].family == Family::brief);
  for (const int peer : {0, 2}) {
    CHECK(exchanges.tasks[0].give(peer).bytes == 8);
    CHECK(exchanges.tasks[0].take(peer).data == dummy.data() + 8 * peer);
  }
  CHECK(exchanges.tasks[0].take(1).bytes == 0);
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

TEST_CASE("addresses that are not multiples of 16 are told") {
  std::vector<std::byte> memory(4096);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const aligned = memory.data() + (16 - address % 16) % 16;
  for (const auto& [offset, alignment] : {std::pair{16, 16}, {8, 8}, {4, 4}, {2, 1}, {1, 1}}) {
    Request request;
    request.which = Collective::all_reduce;
    request.type = DataType::uint8;
    request.send = aligned;
    request.recv = aligned + offset;
    request.count = 64;
    Exchanges exchanges;
    plan_collective(request, 0, 2, {}, nullptr, exchanges);
    CHECK(static_cast<int>(exchanges.tasks[0].alignment) == alignment);
  }
}

}  // namespace paceline::cuda
