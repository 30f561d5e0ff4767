// Exchanges are run here, of bytes, by a stand-in for the kernels: each rank's pieces are copied to the peer that takes
// them.
#include "cuda/calls/exchange.h"

#include <doctest/doctest.h>

#include <numeric>
#include <optional>
#include <vector>

#include "base/call.h"
#include "cuda/calls/case.h"
#include "tuning/gpu_table.h"

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

TEST_CASE("uneven parts that follow each other go direct earlier, and nothing uneven in what takes even calls alone") {
  const GpuTable table = GpuTable::rules(2);
  Request request;
  request.type = DataType::uint8;
  const auto way = [&](Collective which, std::size_t count) {
    request.which = which;
    request.count = count;
    return way_of_call(table, request, 2);
  };
  constexpr std::size_t mega = 1 << 20;
  CHECK_FALSE(way(Collective::all_gather, 5 * mega).direct);
  CHECK(way(Collective::all_gather, 5 * mega + 8).direct);
  CHECK_FALSE(way(Collective::all_gather, mega + 8).direct);
  CHECK(way(Collective::all_gather, mega + 1).direct);
  CHECK_FALSE(way(Collective::scatter, mega + 1).direct);  // who stores byte by byte is the receiver alone
  CHECK_FALSE(way(Collective::all_reduce, 9 * mega + 1).direct);
  CHECK(way(Collective::all_reduce, 256 * mega).passed);
  CHECK(way(Collective::all_reduce, 256 * mega + 1).direct);
  CHECK_FALSE(way(Collective::all_reduce, 256 * mega + 1).passed);
  CHECK(way(Collective::all_gather, 256 * mega).engines);
  CHECK_FALSE(way(Collective::all_gather, 256 * mega + 16 + 1).engines);

  const auto family = [&](std::size_t count) {
    Exchanges exchanges;
    plan_collective(request, 0, 2, way(Collective::all_reduce, count), nullptr, exchanges);
    return exchanges.launches[0].family;
  };
  CHECK(family(64 * mega) == Family::large);
  CHECK(family(64 * mega + 4) == Family::streaming);
  CHECK(family(2048 * mega + 4) == Family::large);  // further than strips reach
}

TEST_CASE("averages of narrow floats go direct, scaled by who loads them; other factors are each rank's own") {
  Request request;
  request.which = Collective::all_reduce;
  request.type = DataType::float16;
  request.count = 64 << 20;
  const GpuWay way{.family = GpuFamily::streaming, .direct = true, .passed = true};
  DirectTask task;
  Launch launch;
  request.op = Operation::avg;
  REQUIRE(plan_direct_task(request, 0, 2, way, task, launch));
  CHECK(task.scales);
  CHECK_FALSE(task.stretches_are_even);
  CHECK(task.folding == Folding::loaded);
  request.op = Operation::sum;
  REQUIRE(plan_direct_task(request, 0, 2, way, task, launch));
  CHECK(task.stretches_are_even);
  CHECK(task.folding == Folding::passed);
  request.op = Operation::premulsum;
  CHECK_FALSE(plan_direct_task(request, 0, 2, way, task, launch));
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

TEST_CASE("ranks meet in a collective of no elements, in its name") {
  std::vector<std::byte> dummy(8 * max_gpus);
  const GpuWay way{.family = GpuFamily::streaming, .two_steps = true, .direct = true, .passed = true};
  for (const Collective which :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter, Collective::broadcast,
        Collective::scatter, Collective::gather, Collective::all_gather, Collective::all_to_all}) {
    Request request;
    request.which = which;
    request.type = DataType::float32;
    request.op = Operation::max;
    for (const int rank : {0, 1}) {
      Exchanges exchanges;
      plan_collective(request, rank, 3, way, dummy.data(), exchanges);
      REQUIRE(exchanges.count == 1);
      const Task& task = exchanges.tasks[0];
      CHECK(exchanges.launches[0].family == Family::brief);
      CHECK_FALSE(task.folds);
      CHECK(task.own_bytes == 0);
      CHECK((task.call_what & ((1U << way_shift) - 1)) ==
            make_call(which, DataType::float32, Operation::max, 0, 0, 0).what);
      CHECK(task.call_count == 0);
      CHECK(task.messages_to(2) == 1);
      CHECK(task.messages_from(2) == 1);
      CHECK(task.take(2).data == dummy.data() + 16);
      PassTask passed;
      DirectTask direct;
      Launch launch;
      CHECK_FALSE(plan_passed_strips(request, rank, 3, way, passed, launch));
      CHECK_FALSE(plan_direct_task(request, rank, 3, way, direct, launch));
    }
  }
}

TEST_CASE("addresses and lengths that are not multiples of 16 are told") {
  std::vector<std::byte> memory(4096);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const aligned = memory.data() + (16 - address % 16) % 16;
  Request request;
  request.which = Collective::all_reduce;
  request.type = DataType::uint8;
  request.send = aligned;
  const auto plan = [&](std::size_t count, int ranks, const GpuWay& way) {
    Exchanges exchanges;
    request.count = count;
    plan_collective(request, 0, ranks, way, nullptr, exchanges);
    return exchanges.tasks[0];
  };
  for (const auto& [offset, alignment] : {std::pair{16, 16}, {8, 8}, {4, 4}, {2, 1}, {1, 1}}) {
    request.recv = aligned + offset;
    const Task task = plan(64, 2, {});
    CHECK(static_cast<int>(task.alignment) == alignment);
    CHECK(task.whole == (alignment == 16));
  }
  request.recv = aligned;
  CHECK_FALSE(plan(65, 2, {}).whole);
  const GpuWay relayed{.family = GpuFamily::streaming, .two_steps = true};
  CHECK(plan(16 << 10, 3, relayed).whole);
  CHECK_FALSE(plan((16 << 10) + 8, 3, relayed).whole);  // only the last part is no multiple
  request.which = Collective::all_gather;
  CHECK(plan(64, 3, {}).whole);
  CHECK_FALSE(plan(72, 3, {}).whole);
}

}  // namespace paceline::cuda
