// The figures are what the links carry after line coding, each way; what of it a program gets is for calibration.
//
//   NVLink 2, 3 and 4   25 GB/s a link (NVIDIA: V100, A100 and H100 architecture papers); 6, 12 and 18 links a GPU
//   PCIe x16            8, 16 and 32 GT/s * 16 lanes * 128/130 / 8: 15.75, 31.5 and 63 GB/s
//   QPI                 9.6 GT/s * 2 bytes = 19.2 GB/s a link, 2 links (Intel Xeon E5-2600 v3 and v4)
//   xGMI-2              16 GT/s * 2 bytes = 32 GB/s a link, 4 links (AMD EPYC 7742, two sockets)
//   UPI 2               16 GT/s * 3 bytes = 48 GB/s a link, 4 links (Intel, Hot Chips 33: Sapphire Rapids)
//   FDR                 4 lanes * 14.0625 Gb/s * 64/66 / 8 = 6.82 GB/s
//   EDR, HDR, NDR       100, 200 and 400 Gb/s of data: 12.5, 25 and 50 GB/s
//
// Latencies are estimates (link_rates.h), for nothing published gives them link by link.
//
// DGX-1V's NVLinks: NVIDIA DGX-1 with Tesla V100 System Architecture (WP-08437). Its PCIe: two GPUs and an
// EDR NIC behind each of four switches, two switches a socket. DGX A100 and HGX H200: each GPU has links to every
// NVSwitch of the board (2 to each of 6; 5, 4, 4 and 5 to 4 of them).
#include "topology/presets.h"

#include <fmt/core.h>

#include <vector>

#include "topology/link_rates.h"

namespace paceline {
namespace {

constexpr Rating pcie3{15.75, pcie_latency};
constexpr Rating pcie4{31.5, pcie_latency};
constexpr Rating pcie5{63, pcie_latency};
constexpr Rating qpi{2 * 19.2, socket_latency};
constexpr Rating xgmi{4 * 32.0, socket_latency};
constexpr Rating upi{4 * 48.0, socket_latency};
constexpr Rating fdr{6.82, network_latency};
constexpr Rating edr{12.5, network_latency};
constexpr Rating hdr{25, network_latency};
constexpr Rating ndr{50, network_latency};

// The part that PCIe connects. CPUs are a clique; GPUs and NICs hang below switches.
class Board {
 public:
  Board(int sockets, Rating between, Rating pcie, int compute_capability)
      : pcie_(pcie), compute_capability_(compute_capability) {
    for (int i = 0; i < sockets; ++i) cpus_.push_back(topology_.add(VertexKind::cpu, fmt::format("cpu{}", i)));
    for (int a = 0; a < sockets; ++a)
      for (int b = a + 1; b < sockets; ++b) topology_.connect(cpu(a), cpu(b), LinkKind::socket, between);
  }
  [[nodiscard]] int cpu(int socket) const { return cpus_[static_cast<std::size_t>(socket)]; }
  int below(int above, VertexKind kind, std::string name) {
    const int capability = kind == VertexKind::gpu ? compute_capability_ : 0;
    const int vertex = topology_.add({.kind = kind, .name = std::move(name), .compute_capability = capability});
    topology_.connect(vertex, above, LinkKind::pcie, pcie_);
    return vertex;
  }
  int pcie_switch(int above) { return below(above, VertexKind::pcie_switch, fmt::format("switch{}", switches_++)); }
  void gpus(int above, int count) {
    for (int i = 0; i < count; ++i) below(above, VertexKind::gpu, fmt::format("gpu{}", topology_.gpus().size()));
  }
  void nics(int above, int count) {
    for (int i = 0; i < count; ++i) below(above, VertexKind::nic, fmt::format("nic{}", nics_++));
  }
  void nvlink_pair(int a, int b, int links) { topology_.connect(gpu(a), gpu(b), LinkKind::nvlink, nvlinks(links)); }
  // One NVSwitch for each element: so many links from it to each GPU.
  void nvswitches(const std::vector<int>& links) {
    for (std::size_t i = 0; i < links.size(); ++i) {
      const int nvswitch = topology_.add(VertexKind::nvswitch, fmt::format("nvswitch{}", i));
      for (const int gpu : topology_.gpus()) topology_.connect(gpu, nvswitch, LinkKind::nvlink, nvlinks(links[i]));
    }
  }
  Topology done() && { return std::move(topology_); }

 private:
  [[nodiscard]] Rating nvlinks(int links) const { return {links * nvlink_rate(compute_capability_), nvlink_latency}; }
  [[nodiscard]] int gpu(int number) const { return topology_.gpus()[static_cast<std::size_t>(number)]; }

  Topology topology_;
  Rating pcie_;
  int compute_capability_;
  std::vector<int> cpus_;
  int switches_ = 0;
  int nics_ = 0;
};

// Four switches on two sockets, with two GPUs each.
Board four_switches(Rating between, Rating pcie, int compute_capability, int nics_each) {
  Board board(2, between, pcie, compute_capability);
  for (int i = 0; i < 4; ++i) {
    const int above = board.pcie_switch(board.cpu(i / 2));
    board.gpus(above, 2);
    board.nics(above, nics_each);
  }
  return board;
}

Topology dgx1_v100() {
  Board board = four_switches(qpi, pcie3, 70, 1);
  for (const auto& [a, b] : {std::pair{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}})
    board.nvlink_pair(a, b, 2);
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}})
    board.nvlink_pair(a, b, 1);
  return std::move(board).done();
}

Topology dgx_a100() {
  Board board = four_switches(xgmi, pcie4, 80, 2);
  board.nvswitches({2, 2, 2, 2, 2, 2});
  return std::move(board).done();
}

Topology hgx_h200() {
  Board board = four_switches(upi, pcie5, 90, 2);
  board.nvswitches({5, 4, 4, 5});
  return std::move(board).done();
}

// Four GPUs of the board with eight: the NVSwitches stay. (A board made for four has none, but 6 links a pair.)
Topology hgx_h200_x4() {
  Board board(1, upi, pcie5, 90);
  for (int i = 0; i < 2; ++i) {
    const int above = board.pcie_switch(board.cpu(0));
    board.gpus(above, 2);
    board.nics(above, 2);
  }
  board.nvswitches({5, 4, 4, 5});
  return std::move(board).done();
}

Topology pcie_4gpu_1socket() {
  Board board(1, qpi, pcie3, 0);
  for (int i = 0; i < 2; ++i) board.gpus(board.pcie_switch(board.cpu(0)), 2);
  board.nics(board.cpu(0), 1);
  return std::move(board).done();
}

Topology pcie_8gpu_2socket() {
  Board board = four_switches(qpi, pcie3, 0, 0);
  board.nics(board.cpu(0), 1);
  return std::move(board).done();
}

// A K80 card is two GPU devices behind a switch of its own.
void k80_cards(Board& board, int above, int cards) {
  for (int i = 0; i < cards; ++i) board.gpus(board.pcie_switch(above), 2);
}

// Eight K80 cards: two behind each of four switches, two switches and an FDR NIC a socket.
Topology cs_storm_k80() {
  Board board(2, qpi, pcie3, 37);
  for (int socket = 0; socket < 2; ++socket) {
    for (int i = 0; i < 2; ++i) k80_cards(board, board.pcie_switch(board.cpu(socket)), 2);
    board.nics(board.cpu(socket), 1);
  }
  return std::move(board).done();
}

Topology k80_node() {
  Board board(1, qpi, pcie3, 37);
  k80_cards(board, board.cpu(0), 1);
  board.nics(board.cpu(0), 1);
  return std::move(board).done();
}

// Two cards and one NIC a socket.
Topology rx1_node() {
  Board board(2, qpi, pcie3, 37);
  for (int socket = 0; socket < 2; ++socket) {
    k80_cards(board, board.cpu(socket), 2);
    board.nics(board.cpu(socket), 1);
  }
  return std::move(board).done();
}

Topology p100_node() {
  Board board(1, qpi, pcie3, 60);
  board.gpus(board.cpu(0), 1);
  board.nics(board.cpu(0), 1);
  return std::move(board).done();
}

const Preset rows[] = {
    {"dgx1-v100", "DGX-1 with 8 V100: NVLink hybrid cube mesh, 4 EDR NICs", dgx1_v100, 1, {.nic = edr}},
    {"dgx-a100", "DGX A100: 8 GPUs on 6 NVSwitches, 8 HDR NICs", dgx_a100, 1, {.nic = hdr}},
    {"hgx-h200", "HGX H200: 8 GPUs on 4 NVSwitches, 8 NDR NICs", hgx_h200, 1, {.nic = ndr}},
    {"hgx-h200-x4", "4 GPUs of an HGX H200, on its 4 NVSwitches", hgx_h200_x4, 1, {.nic = ndr}},
    {"pcie-4gpu-1socket", "4 GPUs behind 2 PCIe 3 switches of one socket", pcie_4gpu_1socket, 1, {.nic = edr}},
    {"pcie-8gpu-2socket", "8 GPUs behind 4 PCIe 3 switches of two sockets", pcie_8gpu_2socket, 1, {.nic = edr}},
    {"cs-storm-k80", "Cray CS-Storm: 8 K80 cards (16 GPUs) on two sockets, 2 FDR NICs", cs_storm_k80, 1, {.nic = fdr}},
    {"k80-node", "One K80 card (2 GPUs) and one EDR NIC", k80_node, 1, {.nic = edr}},
    {"rx1", "8 nodes with 4 K80 cards (8 GPUs) and 2 FDR NICs each", rx1_node, 8, {.nic = fdr}},
    {"rx2", "16 nodes with one P100 and one EDR NIC each", p100_node, 16, {.nic = edr}},
    {"rx3", "16 nodes with one K80 card (2 GPUs) and one EDR NIC each", k80_node, 16, {.nic = edr}},
};

}  // namespace

std::span<const Preset> presets() { return rows; }

Result<Topology> preset(std::string_view name, int nodes) {
  std::string known;
  for (const Preset& row : rows) {
    if (row.name == name) return cluster(row.node(), nodes > 0 ? nodes : row.nodes, row.network);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  return Status(Code::invalid_argument, fmt::format("there is no preset '{}'; there are {}", name, known));
}

}  // namespace paceline
