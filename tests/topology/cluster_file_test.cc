#include "topology/cluster_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "api/address_limit.h"
#include "topology/presets.h"
#include "transport/child.h"

namespace paceline {
namespace {

std::string error_of(std::string_view json) {
  const auto topology = read_cluster(json);
  REQUIRE_FALSE(topology.ok());
  CHECK(topology.status().code() == Code::invalid_argument);
  return topology.status().message();
}

// Two GPUs with a link; `link` stands in it.
std::string pair_with(std::string_view link) {
  return fmt::format(
      R"({{"node": {{"vertices": [{{"name": "a", "kind": "gpu"}}, {{"name": "b", "kind": "gpu"}}], "links": [{}]}}}})",
      link);
}

}  // namespace

TEST_CASE("a cluster of a preset's nodes") {
  const auto topology = read_cluster(R"({"node": {"preset": "dgx1-v100"}, "nodes": 4, "network":
      {"nic_gbs": 12.5, "nodes_per_leaf": 2, "spines": 2, "oversubscription": 2}})");
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  CHECK(topology->gpus().size() == 32);
  CHECK(topology->of_kind(VertexKind::network_switch).size() == 4);
  double up = 0;
  for (const Link& link : topology->links())
    if (topology->vertex(link.to).name == "spine0" && topology->vertex(link.from).name == "leaf1") up = link.bandwidth;
  CHECK(up == 12.5 * 8 / 2 / 2);  // of 8 NICs, to one of two spines
}

TEST_CASE("a node written is the node read") {
  const auto whole = preset("dgx1-v100", 1);
  REQUIRE(whole.ok());
  const auto again = read_cluster(R"({"node": )" + write_node(*whole) + "}");
  REQUIRE_MESSAGE(again.ok(), again.status().message());
  CHECK(write_node(*again) == write_node(*whole));
}

TEST_CASE("a link each way, and one way") {
  const auto topology = read_cluster(pair_with(
      R"({"between": ["a", "b"], "kind": "pcie", "gbs": 8}, {"from": "a", "to": "b", "kind": "nvlink", "gbs": 25})"));
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  CHECK(topology->links().size() == 3);
}

TEST_CASE("what is wrong with a cluster file is said with its place") {
  const std::string unread = "the cluster file is not JSON that can be read: ";
  CHECK(error_of("") == unread + "it ends too early");
  CHECK(error_of("{\"node\": ") == unread + "it ends too early");
  CHECK(error_of("{\"node\": NaN}") == unread + "wrong at byte 10");
  CHECK(error_of("{\"nodes\": 1e999}") == unread + "a number is too large");
  CHECK(error_of(std::string(100000, '[')) == unread + "it is nested more than 8 deep");
  CHECK(error_of("[]") == "the file must be an object");
  CHECK(error_of("{}") == "the file must have a node");
  CHECK(error_of(R"({"node": {"preset": "dgx2"}})").starts_with("there is no preset 'dgx2'"));
  CHECK(error_of(R"({"node": {"preset": "rx3"}, "nodes": 2})") == "a cluster of several nodes must have a network");
  CHECK(error_of(R"({"node": {"preset": "rx3"}, "nodes": 0.5})") == "the file.nodes must be a whole number");
  CHECK(error_of(R"({"node": {"preset": "rx3"}, "nodes": 0})") == "a cluster has 1 to 65536 nodes, not 0");
  CHECK(error_of(R"({"node": {"preset": "rx3"}, "racks": 2})") ==
        "the file has a field that is not known: it may have node, nodes, network");
  CHECK(error_of(R"({"node": {"preset": "rx3"}, "nodes": 4, "network":
      {"nic_gbs": 12, "nodes_per_leaf": 2, "spines": 900000000}})") ==
        "900000000 spines for 2 leaves: that is too many");
  for (const char* nodes : {"", R"("nodes": 2, )"}) {
    const auto with = [&](std::string_view network) {
      return fmt::format(R"({{"node": {{"preset": "rx3"}}, {}"network": {{{}}}}})", nodes, network);
    };
    CHECK(error_of(with(R"("nic_gbs": -5)")) == "network.nic_gbs is -5: it must be above 0");
    CHECK(error_of(with(R"("nic_gbs": 0)")) == "network.nic_gbs is 0: it must be above 0");
    CHECK(error_of(with(R"("nic_gbs": 5, "latency_us": -1)")) == "network.latency_us is -1: it must be 0 or more");
  }
  CHECK(error_of(pair_with("")) == "there is no way from a to b");
  CHECK(error_of(pair_with(R"({"between": ["a", "b"], "kind": "pcie", "gbs": 0})"))
            .starts_with("the link from a to b has a bandwidth of 0 GB/s"));
  CHECK(error_of(pair_with(R"({"between": ["a", "b"], "kind": "pcie", "gbs": -3})"))
            .starts_with("the link from a to b has a bandwidth of -3 GB/s"));
  CHECK(error_of(pair_with(R"({"between": ["a", "c"], "kind": "pcie", "gbs": 3})")) ==
        "node.links[0] ends at \"c\", which is no vertex");
  CHECK(error_of(pair_with(R"({"between": ["a", "b"], "kind": "rope", "gbs": 3})")) ==
        "node.links[0].kind is 'rope': it must be one of nvlink, pcie, socket, network, c2c");
  CHECK(error_of(pair_with(R"({"from": "a", "kind": "pcie", "gbs": 3})")) ==
        "node.links[0] must have \"between\": two names, or \"from\" and \"to\"");
  CHECK(error_of(
            R"({"node": {"vertices": [{"name": "a", "kind": "gpu"}, {"name": "a", "kind": "gpu"}], "links": []}})") ==
        "two vertices are called a");
}

TEST_CASE("more links than memory holds are an error at once") {
  Child child([] {
    if (!testing::limit_addresses(std::size_t{1} << 30)) return false;
    std::string vertices;
    std::string links;
    for (int i = 0; i < 100; ++i) {
      vertices += fmt::format(R"({}{{"name": "g{}", "kind": "gpu"}})", i == 0 ? "" : ", ", i);
      for (int j = 0; j < i; ++j)
        links += fmt::format(R"({}{{"between": ["g{}", "g{}"], "kind": "nvlink", "gbs": 1}})",
                             links.empty() ? "" : ", ", i, j);
    }
    const auto file =
        fmt::format(R"({{"node": {{"vertices": [{}], "links": [{}]}}, "nodes": 10000, "network": {{"nic_gbs": 1}}}})",
                    vertices, links);
    return read_cluster(file).status().message() == "10000 nodes of 9900 links are more than 4194304";
  });
  CHECK(child.ended_well());
}

}  // namespace paceline
