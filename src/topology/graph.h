// The topology: GPUs, CPU sockets, switches and NICs, and the directed links between them.
//
// "Node" is a machine everywhere in Paceline, so what a graph's nodes are elsewhere is a vertex here. A full-duplex
// cable is two links, one each way. GPUs are numbered 0, 1, ... in the order in which they were added; every search
// speaks of GPUs by these numbers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/status.h"

namespace paceline {

enum class VertexKind : std::uint8_t { gpu, cpu, root_port, pcie_switch, nic, nvswitch, network_switch };
std::string_view name(VertexKind kind);  // "gpu", "cpu", "root port", "pcie switch", ...

// socket: between the CPUs of one node; c2c: between a GPU and its CPU beside PCIe (NVLink-C2C)
enum class LinkKind : std::uint8_t { nvlink, pcie, socket, network, c2c };
std::string_view name(LinkKind kind);

struct Vertex {
  VertexKind kind = VertexKind::gpu;
  std::string name;            // unique: "gpu0", "node3/nic1"
  int node = 0;                // the machine; -1: none (network switches)
  std::string bus_id = {};     // PCI address, "0000:3b:00.0"; empty where unknown
  int compute_capability = 0;  // of a GPU: 70, 80, 90, ...; 0 where unknown
  int device = -1;             // of a GPU: NCCL's dev, where a file says it; -1: it says none
};

struct Link {
  int from = 0;  // vertices
  int to = 0;
  double bandwidth = 0;  // GB/s, > 0
  double latency = 0;    // us, >= 0
  LinkKind kind = LinkKind::pcie;
};

// What a cable can do, each way.
struct Rating {
  double bandwidth = 0;  // GB/s
  double latency = 0;    // us
};

class Topology {
 public:
  // Returns the new vertex.
  int add(VertexKind kind, std::string name, int node = 0);
  int add(Vertex vertex);
  // One link, one way. Parallel ones, of one kind between the same ends, are one link: of all their bandwidth, and the
  // latency of the slowest. Searches, which give a message one link, could not use the others.
  void link(int from, int to, LinkKind kind, Rating rating);
  // A full-duplex cable: a link each way.
  void connect(int a, int b, LinkKind kind, Rating rating);

  [[nodiscard]] const std::vector<Vertex>& vertices() const { return vertices_; }
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }
  // The vertices that are GPUs: element i is GPU i.
  [[nodiscard]] const std::vector<int>& gpus() const { return gpus_; }
  [[nodiscard]] int nodes() const;  // machines: the largest number of one, plus 1
  [[nodiscard]] std::vector<int> of_kind(VertexKind kind) const;
  // The links that leave each vertex.
  [[nodiscard]] std::vector<std::vector<int>> leaving() const;

  [[nodiscard]] const Vertex& vertex(int index) const { return vertices_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const Link& link(int index) const { return links_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<Vertex> vertices_;
  std::vector<Link> links_;
  std::map<std::tuple<int, int, LinkKind>, std::size_t> number_of_;  // of links
  std::vector<int> gpus_;
};

// Whether searches can work on it. Errors (invalid_argument) name the vertex or link: no GPU; two vertices of one name;
// a link from a vertex to itself or to one that does not exist; a bandwidth that is not within 10^-6 .. 10^6 GB/s; a
// negative or infinite latency; a GPU that cannot reach another one.
Status validate(const Topology& topology);

// The part of a valid topology that a collective on these GPUs may use; GPU i of the result is gpus[i].
//   - The other GPUs are left out: they do not relay.
//   - GPUs that NVLink connects use NVLink alone, as NCCL does and as published rates count. PCIe and the sockets stay
//     where some of the GPUs have no way to the others over NVLink, and in clusters.
//   - GPUs of one node do not use the network where something else connects them. Nodes without any are left out.
// Errors (invalid_argument): none given, an unknown number, one twice, GPUs that then have no way to each other.
Result<Topology> select(const Topology& topology, std::span<const int> gpus);

// The number that each link of a part, as select() makes it, has in the whole topology.
std::vector<int> links_in_whole(const Topology& part, const Topology& whole);

// The same topology where the NVSwitches of a node are one, if each of them has the same bandwidth to every GPU that it
// is linked with and all have the same GPUs: hardware spreads each message over them. For searches that give a message
// one way. `part_of` gets, by link of a valid topology, the number of the link that it is, or has become a part of.
Topology with_one_nvswitch(const Topology& topology, std::vector<int>* part_of = nullptr);

}  // namespace paceline
