#include "tuning/prediction/prediction.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/index.h"
#include "schedule/peak_memory.h"
#include "topology/bounds.h"
#include "topology/cluster.h"
#include "topology/nccl_xml.h"
#include "topology/part.h"
#include "topology/rings.h"
#include "tuning/prediction/symmetry.h"

namespace paceline {
namespace {

Question question_of(Collective collective, int gpus, std::vector<std::size_t> sizes, std::string algorithm) {
  Question question;
  question.collective = collective;
  question.gpus.resize(static_cast<std::size_t>(gpus));
  std::iota(question.gpus.begin(), question.gpus.end(), 0);
  question.sizes = std::move(sizes);
  question.algorithm = std::move(algorithm);
  question.machine = typical_machine();
  return question;
}

Prediction predicted(const Topology& topology, const Question& question) {
  const auto answer = predict(topology, question);
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  REQUIRE(answer->rows.size() == 1);
  return answer->rows[0];
}

constexpr std::size_t gigabyte = 1'000'000'000;

// Of 1 GB.
void check_trees_at_bounds(const Topology& machine, const std::vector<int>& gpus, bool messages_cost) {
  const Bounds bounds = throughput_bounds(part(machine, gpus));
  Question question = question_of(Collective::broadcast, 0, {gigabyte}, "packed_trees");
  if (!messages_cost) question.machine.start = question.machine.delay = 0;
  question.gpus = gpus;
  question.root = bounds.worst_root;
  const double broadcast = predicted(machine, question).algbw_gbs / bounds.broadcast.gbs();
  CHECK(broadcast <= 1 + 1e-9);
  CHECK(broadcast >= 0.98);
  question.collective = Collective::all_gather;
  question.root = 0;
  const double gather = predicted(machine, question).busbw_gbs / bounds.all_gather.gbs();
  CHECK(gather <= 1 + 1e-9);
  CHECK(gather >= 0.98);
  question.collective = Collective::reduce_scatter;
  const double scatter = predicted(machine, question).busbw_gbs / bounds.reduce_scatter.gbs();
  CHECK(scatter <= 1 + 1e-9);
  CHECK(scatter >= 0.98);
  question.collective = Collective::all_reduce;
  const double reduction = predicted(machine, question).busbw_gbs / bounds.all_reduce.gbs();
  CHECK(reduction >= 0.98);
}

}  // namespace

// Links have their latency. What messages cost beside it takes longer to try: on each fifth subset.
TEST_CASE("packed trees reach 98% of the bound for 1 GB on every subset of a DGX-1V") {
  const auto machine = preset("dgx1-v100");
  for (int set = 1; set < 256; ++set) {
    const std::vector<int> gpus = subset(set);
    if (gpus.size() == 1) continue;
    INFO("set ", set);
    check_trees_at_bounds(*machine, gpus, false);
    if (set % 5 == 0 && gpus.size() < 8) check_trees_at_bounds(*machine, gpus, true);
  }
}

TEST_CASE("packed trees come within 2% of the bound through switches") {
  for (const char* name :
       {"dgx-a100", "hgx-h200", "hgx-h200-x4", "pcie-4gpu-1socket", "pcie-8gpu-2socket", "cs-storm-k80", "k80-node"}) {
    INFO(std::string(name));
    const Topology machine = *preset(name);
    std::vector<int> gpus(machine.gpus().size());
    std::iota(gpus.begin(), gpus.end(), 0);
    check_trees_at_bounds(machine, gpus, true);
  }
}

// Beside NVLink, trees leave to NICs what PCIe has beyond them: 2.5% of these bounds.
TEST_CASE("packed trees through switches and NICs come near the bound of two nodes") {
  for (const auto& [name, part_of_bound] :
       {std::pair{"dgx1-v100", 0.98}, {"hgx-h200-x4", 0.98}, {"hgx-h200", 0.93}, {"dgx-a100", 0.93}}) {
    INFO(std::string(name));
    const Topology machine = *preset(name, 2);
    Question question =
        question_of(Collective::all_gather, static_cast<int>(machine.gpus().size()), {gigabyte}, "packed_trees");
    question.machine.start = question.machine.delay = 0;
    const Bounds bounds = throughput_bounds(part(machine));
    CHECK(predicted(machine, question).busbw_gbs >= part_of_bound * bounds.all_gather.gbs());
    question.collective = Collective::broadcast;
    CHECK(predicted(machine, question).algbw_gbs >= 0.96 * bounds.broadcast.gbs());
  }
}

TEST_CASE("packed trees choose chunks that are long enough for what messages cost") {
  const Topology machine = *preset("dgx1-v100");
  for (const Collective collective : {Collective::broadcast, Collective::all_gather, Collective::all_reduce}) {
    INFO(title(collective));
    CHECK(predicted(machine, question_of(collective, 8, {gigabyte}, "packed_trees")).busbw_gbs >= 0.94 * 150);
  }
}

TEST_CASE("rings on a DGX-1V: the rates of NCCL's rings") {
  const auto machine = preset("dgx1-v100");
  const auto busbw = [&](std::vector<int> gpus) {
    Question question = question_of(Collective::all_reduce, 0, {gigabyte}, "rings");
    question.gpus = std::move(gpus);
    return predicted(*machine, question).busbw_gbs;
  };
  CHECK(busbw({0, 1}) == doctest::Approx(25).epsilon(0.01));
  CHECK(busbw({0, 3}) == doctest::Approx(50).epsilon(0.01));
  CHECK(busbw({0, 1, 2, 3}) == doctest::Approx(100).epsilon(0.01));
  CHECK(busbw({0, 1, 2, 3, 4, 5, 6, 7}) == doctest::Approx(150).epsilon(0.01));
}

TEST_CASE("the chunk of a prediction is the longest message that is sent") {
  const Topology machine = *preset("dgx1-v100");
  const auto chunk = [&](Collective collective, std::size_t bytes, std::string algorithm) {
    Question question = question_of(collective, 8, {bytes}, std::move(algorithm));
    question.in_detail = true;
    const auto answer = predict(machine, question);
    REQUIRE_MESSAGE(answer.ok(), answer.status().message());
    double longest = 0;
    for (const Deed& deed : answer->simulation.timeline) longest = std::max(longest, deed.bytes);
    CHECK(static_cast<double>(answer->rows[0].chunk_bytes) == longest);
    return answer->rows[0].chunk_bytes;
  };
  CHECK(chunk(Collective::all_reduce, 1 << 20, "ring") == 1 << 17);
  CHECK(chunk(Collective::all_gather, 1 << 20, "direct") == 1 << 17);
  CHECK(chunk(Collective::broadcast, 1 << 20, "chain") == 1 << 20);
  CHECK(predicted(machine, question_of(Collective::barrier, 8, {0}, "dissemination")).chunk_bytes == 0);
  const auto model = predict(CostModel(), 8, question_of(Collective::barrier, 8, {0}, "dissemination"));
  CHECK(model->rows[0].chunk_bytes == 0);
}

TEST_CASE("the order of the chain: 8 streams on a link, or 1") {
  const auto machine = preset("cs-storm-k80");
  Question question = question_of(Collective::broadcast, 16, {gigabyte}, "pipelined_chain");
  const auto by_socket = placement(*machine, "socket");
  REQUIRE(by_socket.ok());
  question.gpus = *by_socket;
  const Prediction naive = predicted(*machine, question);
  question.algorithm = "topology_chain";
  const Prediction suited = predicted(*machine, question);
  CHECK(suited.time_us == doctest::Approx(1e9 / 15750).epsilon(0.03));
  // Round robin over the sockets: 8 streams between them, of 38.4 GB/s, and 4 up each of the switches' links.
  CHECK(naive.time_us == doctest::Approx(1e9 * 4 / 15750).epsilon(0.03));
  CHECK(suited.busiest_share == doctest::Approx(1).epsilon(0.03));
}

TEST_CASE("ranks are placed as launchers do") {
  const auto machine = preset("rx1", 2);  // 2 nodes of 2 sockets of 4 GPUs
  CHECK(*placement(*machine, "gpu") == std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(*placement(*machine, "socket") == std::vector{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15});
  CHECK(*placement(*machine, "node") == std::vector{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
  CHECK(placement(*machine, "core").status().message() ==
        "ranks are placed by 'gpu', 'socket' or 'node', not by 'core'");
}

TEST_CASE("trivial questions have trivial answers") {
  const auto machine = preset("dgx1-v100");
  for (const int gpus : {1, 4}) {
    for (const std::size_t bytes : {0, 1, 4}) {
      const auto answer = predict(*machine, question_of(Collective::all_reduce, gpus, {bytes}, "all"));
      REQUIRE(answer.ok());
      CHECK(answer->rows.size() >= 6);
      for (const Prediction& row : answer->rows) {
        INFO(row.algorithm);
        CHECK((row.time_us > 0) == (gpus > 1 && bytes > 0));
        CHECK(std::isfinite(row.algbw_gbs));
      }
    }
  }
  CHECK(predict(*machine, question_of(Collective::barrier, 8, {0}, "dissemination"))->rows[0].time_us ==
        doctest::Approx(3 * (0.5 + 2 + 0.5)).epsilon(0.3));
}

TEST_CASE("what sends between GPUs without a way is left out, and an error if nothing else is asked for") {
  Topology line;
  for (const char* name : {"a", "b", "c", "d"}) line.add(VertexKind::gpu, name);
  for (int i = 0; i < 3; ++i) line.connect(i, i + 1, LinkKind::nvlink, {50, 0});
  const auto has = [](const Answer& answer, std::string_view algorithm) {
    return std::ranges::any_of(answer.rows, [&](const Prediction& row) { return row.algorithm == algorithm; });
  };
  const auto answer = predict(line, question_of(Collective::broadcast, 4, {1024, 4096}, "all"));
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  for (const char* algorithm : {"chain", "pipelined_chain", "topology_chain", "packed_trees"})
    CHECK_MESSAGE(has(*answer, algorithm), algorithm);
  CHECK_FALSE(has(*answer, "direct"));
  CHECK(std::ranges::count(answer->left_out, "direct: there is no way from GPU 0 to GPU 2") == 1);

  Question inner = question_of(Collective::broadcast, 4, {1024}, "all");
  inner.root = 1;
  const auto from_inner = predict(line, inner);
  REQUIRE_MESSAGE(from_inner.ok(), from_inner.status().message());
  CHECK(has(*from_inner, "packed_trees"));
  CHECK(std::ranges::count(from_inner->left_out,
                           "topology_chain: no chain passes all of these GPUs, for GPUs do not relay") == 1);
  inner.algorithm = "topology_chain";
  const Status alone = predict(line, inner).status();
  CHECK(alone.code() == Code::invalid_argument);
  CHECK(alone.message() == "topology_chain: no chain passes all of these GPUs, for GPUs do not relay");

  inner.algorithm = "all";
  inner.sources = 2;
  const auto sources = predict(line, inner);
  REQUIRE_MESSAGE(sources.ok(), sources.status().message());
  CHECK(has(*sources, "multicast"));
  CHECK_FALSE(has(*sources, "ring"));
}

TEST_CASE("that no ring passes all GPUs is said only where it is proved") {
  const auto complaint = [](const Topology& topology) {
    const auto gpus = static_cast<int>(topology.gpus().size());
    return predict(topology, question_of(Collective::all_reduce, gpus, {gigabyte}, "rings")).status().message();
  };
  Topology star;
  for (const char* name : {"hub", "a", "b", "c"}) star.add(VertexKind::gpu, name);
  for (int i = 1; i < 4; ++i) star.connect(0, i, LinkKind::nvlink, {1, 0});
  CHECK(complaint(star) == "rings: no ring passes all of these GPUs");
  Topology mesh;  // and a GPU at its last corner
  for (int i = 0; i < 31; ++i) mesh.add(VertexKind::gpu, fmt::format("gpu{}", i));
  for (int i = 0; i < 30; ++i) {
    if (i % 6 < 5) mesh.connect(i, i + 1, LinkKind::nvlink, {50, 0});
    if (i < 24) mesh.connect(i, i + 6, LinkKind::nvlink, {50, 0});
  }
  mesh.connect(29, 30, LinkKind::nvlink, {50, 0});
  CHECK(complaint(mesh) == "rings: no ring was found before the search was given up");
}

TEST_CASE("questions that make no sense are errors") {
  const auto machine = preset("dgx1-v100");
  const auto error = [&](auto change) {
    Question question = question_of(Collective::broadcast, 4, {1024}, "all");
    change(question);
    return predict(*machine, question).status().message();
  };
  CHECK(error([](Question& q) { q.gpus.clear(); }) == "no GPU is named");
  CHECK(error([](Question& q) { q.gpus[1] = 8; }) == "there is no GPU 8: this topology has GPUs 0 to 7");
  CHECK(error([](Question& q) { q.gpus[1] = -1; }) == "there is no GPU -1: this topology has GPUs 0 to 7");
  CHECK(error([](Question& q) { q.gpus[1] = 0; }) == "GPU 0 is named twice");
  CHECK(error([](Question& q) { q.root = 4; }) == "root 4 is none of the 4 ranks");
  CHECK(error([](Question& q) { q.root = -1; }) == "root -1 is none of the 4 ranks");
  CHECK(error([](Question& q) { q.sizes.clear(); }) == "no sizes are given");
  CHECK(error([](Question& q) { q.sizes = {SIZE_MAX}; }) == "18446744073709551615 bytes are more than memory can hold");
  CHECK(error([](Question& q) { q.algorithm = "magic"; }) ==
        "there is no algorithm 'magic' for broadcast on 4 ranks: take one of direct, fan_out, chain, pipelined_chain, "
        "knomial, scatter_ring, scatter_doubling, hierarchical, topology_chain, packed_trees, multicast, or all");
  CHECK(error([](Question& q) { q.algorithm = "bruck", q.collective = Collective::all_reduce; }) ==
        "there is no algorithm 'bruck' for all-reduce on 4 ranks: take one of one_shot, two_shot, ring, "
        "recursive_doubling, rabenseifner, double_tree, hierarchical, packed_trees, rings, reduction_server, or all");
  CHECK(predict(CostModel(), 4, question_of(Collective::barrier, 0, {0}, "ring")).status().message() ==
        "there is no algorithm 'ring' for barrier on 4 ranks: take one of dissemination, central, fan, or all");
  CHECK(error([](Question& q) { q.sources = 5; }) == "5 sources: there are 4 ranks");
  CHECK(error([](Question& q) { q.sources = 2, q.algorithm = "pipelined_chain"; }) ==
        "there is no algorithm 'pipelined_chain' for several sources: they have knomial, ring and multicast");
  CHECK(error([](Question& q) { q.in_detail = true; }) == "links and timelines are of one algorithm at one size");
}

TEST_CASE("nodes that an NVSwitch joins send over NVLink, and to others through their NICs") {
  const auto joined = [](int hosts, int with_nvlink) {
    std::string xml = R"(<system version="1">)";
    for (int host = 0; host < hosts; ++host) {
      xml += fmt::format(R"(<cpu host_hash="0x{}" numaid="0" arch="arm64">)", host + 1);
      for (int gpu = 0; gpu < 2; ++gpu)
        xml +=
            fmt::format(R"(<pci busid="0000:{:02x}:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
                              <gpu dev="{}" sm="100">{}</gpu></pci>)",
                        2 * host + gpu + 1, gpu,
                        host < with_nvlink ? R"(<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>)" : "");
      xml += fmt::format(R"(<pci busid="0000:e{}:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
                            <nic><net name="mlx5_0" speed="400000"/></nic></pci></cpu>)",
                         host);
    }
    auto topology = read_nccl_topology(xml + "</system>");
    REQUIRE_MESSAGE(topology.ok(), topology.status().message());
    return *topology;
  };
  const Topology pair = joined(2, 2);
  const auto found = [](const Topology& topology, int gpus, std::string algorithm) {
    Question question = question_of(Collective::all_reduce, gpus, {gigabyte}, std::move(algorithm));
    question.machine.start = question.machine.delay = 0;
    return predicted(topology, question);
  };
  for (const char* algorithm : {"ring", "rings"}) {
    const Prediction row = found(pair, 4, algorithm);
    INFO(row.algorithm, " ", row.busiest_link);
    CHECK(row.busbw_gbs ==
          doctest::Approx(static_cast<double>(pack_rings(part(pair)).rate) / units_per_gbs).epsilon(0.01));
    CHECK(row.busiest_link.find("nvswitch") != std::string::npos);
  }
  const Prediction apart = found(joined(3, 2), 6, "ring");
  CHECK(apart.busbw_gbs == doctest::Approx(50).epsilon(0.01));
  CHECK(apart.busiest_link.find("network") != std::string::npos);
}

namespace {

// The ranks of one part, of so many, take as long as all ranks.
void check_that_one_part_stands_for_all(const Topology& topology, int parts) {
  const int n = static_cast<int>(topology.gpus().size());
  for (const auto& [algorithm, collective, symmetric] : {std::tuple{"ring", Collective::all_reduce, true},
                                                         {"ring", Collective::all_gather, true},
                                                         {"recursive_doubling", Collective::all_reduce, false}}) {
    INFO(algorithm);
    const Problem problem{.collective = collective, .ranks = n, .count = at(n) * 8192, .in_place = true};
    WayFinder folded(topology);
    const int period = folded.fold();
    CHECK(period == n / parts);
    const auto part = symmetric_traffic(*algorithm_named(algorithm), problem, {.chunk = 4096}, 4, period);
    CHECK(part.has_value() == symmetric);
    if (!part) continue;
    Schedule schedule(problem, {.chunk = 4096});
    algorithm_named(algorithm)->write(schedule);
    WayFinder finder(topology);
    const auto whole = simulate(finder, std::vector{traffic_of(schedule, 4)}, typical_machine());
    const auto one = simulate(folded, std::vector{*part}, typical_machine());
    REQUIRE(one.ok());
    CHECK(one->time == doctest::Approx(whole->time).epsilon(1e-9));
  }
}

}  // namespace

TEST_CASE("one node's ranks stand for all where all nodes do the same") {
  for (const auto& [name, nodes] : {std::pair{"hgx-h200", 4}, {"dgx-a100", 8}, {"rx1", 16}}) {
    INFO(name);
    check_that_one_part_stands_for_all(with_one_nvswitch(*preset(name, nodes)), nodes);
  }
}

TEST_CASE("one leaf's ranks stand for all where all leaves do the same") {
  const Topology node = *preset("hgx-h200-x4", 1);
  for (const auto& [nodes, per_leaf, spines] : {std::tuple{6, 2, 3}, {8, 2, 4}, {9, 3, 2}, {12, 4, 1}}) {
    INFO(nodes, " nodes, ", per_leaf, " a leaf, ", spines, " spines");
    const Network network{
        .nic = {.bandwidth = 50, .latency = 0.5}, .nodes_per_leaf = per_leaf, .spines = spines, .oversubscription = 4};
    check_that_one_part_stands_for_all(*cluster(node, nodes, network), nodes / per_leaf);
  }
  // Some leaf has fewer nodes.
  const Topology uneven = *cluster(node, 5, {.nic = {.bandwidth = 50, .latency = 0.5}, .nodes_per_leaf = 2});
  CHECK(WayFinder(uneven).fold() == 0);
}

TEST_CASE("one node's ranks stand for all only where that changes the size by no more than a hundredth") {
  for (const auto& [nodes, bytes, error] : {std::tuple{100, 10'000'000, 0.01}, {300, 8, 1e-9}}) {
    INFO(nodes, " nodes, ", bytes, " bytes");
    Question question = question_of(Collective::all_reduce, nodes, {at(bytes)}, "ring");
    const Topology topology = *preset("rx2", nodes);
    const Prediction row = predicted(topology, question);
    CHECK(row.bytes == at(bytes));
    question.machine.slow_gpus[0] = 1;  // all ranks are simulated
    CHECK(row.time_us == doctest::Approx(predicted(topology, question).time_us).epsilon(error));
  }
  const auto many = predict(*preset("rx2", 16384), question_of(Collective::all_reduce, 16384, {8}, "ring"));
  CHECK(many.status().message().ends_with(
      "steps are too many to simulate; of 65536 bytes, which make equal blocks, one part's ranks would stand for all"));
}

TEST_CASE("workers of a reduction server share their node's NICs") {
  // 4 GPUs behind each FDR NIC, one behind each EDR NIC. Each of a quarter as many servers takes the bytes of 4
  // workers.
  for (const auto& [name, nic, of_each] : {std::tuple{"rx1", 6.82, 6.82 / 4}, {"rx2", 12.5, 12.5}}) {
    INFO(name);
    const Topology machine = *preset(name);
    const auto gpus = static_cast<int>(machine.gpus().size());
    Question question = question_of(Collective::all_reduce, gpus, {gigabyte}, "reduction_server");
    CHECK(predicted(machine, question).algbw_gbs == doctest::Approx(of_each).epsilon(0.001));
    question.servers = gpus / 4;
    CHECK(predicted(machine, question).algbw_gbs == doctest::Approx(nic / 4).epsilon(0.001));
  }
}

TEST_CASE("a multicast passes each NIC once, wherever ranks are placed") {
  const Topology machine = *preset("rx1");
  Question question = question_of(Collective::broadcast, 64, {gigabyte}, "multicast");
  const double in_order = predicted(machine, question).time_us;
  CHECK(in_order > 1e6 / 6.82);
  question.gpus = *placement(machine, "node");
  CHECK(predicted(machine, question).time_us == in_order);
}

TEST_CASE("a multicast is copied at the rate of its GPUs' PCIe links") {
  constexpr std::size_t chunk = 512 << 10;
  // (NIC, PCIe) in GB/s, of two ranks on two nodes.
  for (const auto& [name, nic, pcie] : {std::tuple{"hgx-h200", 50.0, 63.0}, {"rx2", 12.5, 15.75}}) {
    INFO(name);
    const Topology machine = *preset(name, 2);
    Question question = question_of(Collective::broadcast, 0, {16 * chunk}, "multicast");
    question.gpus = {0, static_cast<int>(machine.gpus().size()) / 2};
    const double copy = chunk / (1000 * pcie);
    const double cast = chunk / 4096.0 * (0.05 + std::log(2) / 17.5) + chunk / (1000 * nic);
    const double time = copy + 15 * std::max(copy, cast) + cast;
    CHECK(predicted(machine, question).time_us == doctest::Approx(time).epsilon(1e-9));
    question.sources = 1;
    CHECK(predicted(machine, question).time_us == doctest::Approx(time).epsilon(1e-9));
  }
}

TEST_CASE("a multicast takes no other start and delay than its datagrams'") {
  const Topology machine = *preset("rx2");
  Question question = question_of(Collective::broadcast, 16, {1 << 20}, "multicast");
  question.timed = true;
  const std::string_view reason =
      "multicast: its formula has its datagrams' own start and delay, and takes no other (--start, --delay)";
  CHECK(predict(machine, question).status().message() == reason);
  question.algorithm = "all";
  question.sources = 2;
  const auto answer = predict(machine, question);
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  CHECK(answer->rows.size() == 2);
  CHECK(answer->left_out == std::vector<std::string>{std::string(reason)});
}

TEST_CASE("a model answers without a topology") {
  CostModel model;
  Question question = question_of(Collective::all_reduce, 0, {1 << 20}, "ring");
  const auto answer = predict(model, 8, question);
  REQUIRE(answer.ok());
  const auto choice =
      choose({.collective = Collective::all_reduce, .ranks = 8, .count = 1 << 18, .in_place = true}, model, "ring");
  CHECK(answer->rows[0].time_us == choice->predicted_us);
  CHECK(answer->rows[0].method == "model");
  Question sources = question_of(Collective::broadcast, 0, {1 << 20}, "ring");
  sources.sources = 2;
  CHECK(predict(model, 8, sources).status().message() == "several sources need a topology");
  CHECK(predict(model, 0, question).status().message() == "ranks is 0: give 1 or more");
  CHECK(predict(model, 2'000'000'000, question).status().message() == "2000000000 ranks: at most 65536");
}

TEST_CASE("a profile's times correct its model") {
  Setting setting;
  setting.transport = "shm";
  setting.ranks = 8;
  const Problem problem{.collective = Collective::all_reduce, .ranks = 8, .count = 1 << 18};
  const Algorithm& ring = *algorithm_named("ring");
  const double formula = ring.cost(problem, ring.parameters(problem, setting.model), setting.model);
  setting.curves.push_back({Collective::all_reduce, &ring, {{1 << 20, 3 * formula}}});
  const auto tuned = Tuned::of({"", "", {setting}}, "shm", 8);
  Question question = question_of(Collective::all_reduce, 0, {1 << 20}, "all");
  const auto answer = predict(setting.model, 8, question, tuned.get());
  REQUIRE(answer.ok());
  for (const Prediction& row : answer->rows) {
    CHECK(row.method == (row.algorithm == "ring" ? "measured" : "model"));
    if (row.algorithm == "ring") CHECK(row.time_us == doctest::Approx(3 * formula));
  }
}

TEST_CASE("a prediction is called measured only inside what was measured") {
  Setting two;
  two.transport = "shm";
  two.ranks = 2;
  Setting eight = two;
  eight.ranks = 8;
  const Algorithm& ring = *algorithm_named("ring");
  two.curves.push_back({Collective::all_reduce, &ring, {{1 << 10, 5}, {1 << 16, 50}}});
  eight.curves.push_back({Collective::all_reduce, &ring, {{1 << 10, 20}, {1 << 16, 90}}});
  const Profile profile{"", "", {two, eight}};
  const auto method = [&](int ranks, Question question) {
    const auto tuned = Tuned::of(profile, "shm", ranks);
    return predict(tuned->model(two.model), ranks, question, tuned.get())->rows.at(0).method;
  };
  const auto asked = [](std::size_t bytes) { return question_of(Collective::all_reduce, 0, {bytes}, "ring"); };
  for (const std::size_t bytes : {1 << 10, 1 << 12, 1 << 16}) CHECK(method(2, asked(bytes)) == "measured");
  for (const std::size_t bytes : {8, 1 << 20}) CHECK(method(2, asked(bytes)) == "estimated");
  CHECK(method(8, asked(1 << 12)) == "measured");
  for (const int ranks : {4, 16}) CHECK(method(ranks, asked(1 << 12)) == "estimated");
  Question chunks = asked(1 << 16);
  chunks.chunk_bytes = 4096;
  CHECK(method(2, chunks) == "estimated");
  Question halves = asked(1 << 12);
  halves.element_bytes = 2;
  CHECK(method(2, halves) == "estimated");
  CHECK(method(2, question_of(Collective::all_reduce, 0, {1 << 12}, "one_shot")) == "model");
}

TEST_CASE("a ring on 16,384 GPUs takes 32,766 steps of 2.5 us and what their links' latency adds") {
  const testing::PeakMemory peak;
  const auto cluster = preset("hgx-h200", 2048);
  const Prediction ring = predicted(*cluster, question_of(Collective::all_reduce, 16384, {256 << 20}, "ring"));
  CHECK(ring.count == std::size_t{64} << 20);
  CHECK(ring.time_us > 32766 * 2.5);
  CHECK(ring.time_us < 32766 * 5.0);
  CHECK(peak.bytes() > 0);
  CHECK(peak.bytes() < std::size_t{8} << 30);
}

TEST_CASE("a ring around 4,096 GPUs at 32 leaf switches is simulated") {
  const Network network{
      .nic = {.bandwidth = 50, .latency = 0.5}, .nodes_per_leaf = 16, .spines = 16, .oversubscription = 2};
  const Topology topology = *cluster(*preset("hgx-h200", 1), 512, network);
  const Prediction ring = predicted(topology, question_of(Collective::all_reduce, 4096, {256 << 20}, "ring"));
  CHECK(ring.method == "simulated");
  CHECK(ring.time_us > 8190 * 2.5);
  CHECK(ring.time_us < 8190 * 5.0);
}

// PACELINE_TEST_LONG=1: two minutes.
TEST_CASE("all-reduce on 16,384 GPUs by ring, trees or levels is simulated within two minutes and 8 GiB") {
  if (std::getenv("PACELINE_TEST_LONG") == nullptr) return;
  const auto cluster = preset("hgx-h200", 2048);
  for (const char* algorithm : {"ring", "double_tree", "hierarchical"}) {
    const testing::PeakMemory peak;
    const auto began = std::chrono::steady_clock::now();
    CHECK(predicted(*cluster, question_of(Collective::all_reduce, 16384, {256 << 20}, algorithm)).time_us > 0);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::minutes(2));
    CHECK(peak.bytes() < std::size_t{8} << 30);
  }
}

}  // namespace paceline
