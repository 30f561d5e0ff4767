#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "base/index.h"
#include "topology/link_rates.h"
#include "topology/nccl_xml.h"
#include "topology/nccl_xml_element.h"

namespace paceline {
namespace {

std::string text_of(const pugi::xml_document& document) {
  std::ostringstream text;
  document.save(text, "  ", pugi::format_indent | pugi::format_no_declaration);
  return std::move(text).str();
}

// The generation and width that come nearest to a rate; of several the one with 16 lanes, as slots of GPUs have.
std::pair<double, int> nearest_pcie(double gbs) {
  std::pair best{0.0, 0};
  double least = 1e300;
  for (const int width : {16, 8, 4, 2, 1, 32}) {
    for (const PcieGeneration& generation : pcie_generations()) {
      const double distance = std::abs(std::log(generation.lane * width / gbs));
      if (distance < least - 1e-9) {
        least = distance;
        best = {generation.transfers, width};
      }
    }
  }
  return best;
}

class Writer {
 public:
  explicit Writer(const Topology& topology);
  Result<std::string> write();

 private:
  void cpu(pugi::xml_node root, int vertex);
  Status below(pugi::xml_node parent, int above, double up, int vertex, int depth);
  Status all_below(pugi::xml_node parent, int above, int vertex, int depth);  // what is below `vertex`
  void gpu(pugi::xml_node parent, int vertex);
  void nic(pugi::xml_node parent, int vertex);

  const Topology& topology_;
  std::vector<std::vector<int>> leaving_;
  std::vector<std::string> bus_id_;
  std::vector<bool> written_;
  std::vector<int> device_;  // by GPU
  int nics_ = 0;
};

Writer::Writer(const Topology& topology)
    : topology_(topology),
      leaving_(topology.leaving()),
      bus_id_(topology.vertices().size()),
      written_(topology.vertices().size()),
      device_(nccl_devices(topology)) {
  std::set<std::pair<int, std::string>> taken;
  // Parts of one GPU have one address, but here each has an element of its own.
  for (std::size_t i = 0; i < bus_id_.size(); ++i) {
    const Vertex& vertex = topology.vertices()[i];
    if (taken.emplace(vertex.node, vertex.bus_id).second) bus_id_[i] = vertex.bus_id;
  }
  std::map<int, int> next;  // node: bus
  for (std::size_t i = 0; i < bus_id_.size(); ++i) {
    const Vertex& vertex = topology.vertices()[i];
    while (bus_id_[i].empty()) {
      const int bus = ++next[vertex.node];
      std::string made_up = fmt::format("{:04x}:{:02x}:00.0", bus >> 8, bus & 0xff);
      if (taken.emplace(vertex.node, made_up).second) bus_id_[i] = std::move(made_up);
    }
  }
}

Result<std::string> Writer::write() {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("system");
  set(root, "version", "1");
  const auto cpus = topology_.of_kind(VertexKind::cpu);
  std::map<int, int> numa;  // node: CPUs so far
  for (const int vertex : cpus) {
    pugi::xml_node element = root.append_child("cpu");
    const int node = topology_.vertex(vertex).node;
    if (topology_.nodes() > 1) set(element, "host_hash", fmt::format("{:#x}", node + 1));
    set(element, "numaid", fmt::format("{}", numa[node]++));
    cpu(element, vertex);
    PACE_TRY(all_below(element, vertex, vertex, 0));
  }
  for (std::size_t i = 0; i < written_.size(); ++i) {
    const Vertex& vertex = topology_.vertices()[i];
    if (!written_[i] && (vertex.kind == VertexKind::gpu || vertex.kind == VertexKind::nic))
      return Status(Code::unsupported,
                    fmt::format("NCCL's topology XML has no place for {}, which is not below a CPU", vertex.name));
  }
  return text_of(document);
}

// The model whose sockets are linked most alike.
void Writer::cpu(pugi::xml_node element, int vertex) {
  double between = cpu_models().front().between;
  for (const int l : leaving_[at(vertex)])
    if (topology_.link(l).kind == LinkKind::socket) between = topology_.link(l).bandwidth;
  const auto nearest =
      std::min_element(cpu_models().begin(), cpu_models().end(), [&](const CpuModel& a, const CpuModel& b) {
        return std::abs(a.between - between) < std::abs(b.between - between);
      });
  set(element, "arch", "x86_64");
  set(element, "vendor", std::string(nearest->vendor));
  set(element, "familyid", fmt::format("{}", nearest->family));
  set(element, "modelid", fmt::format("{}", nearest->model));
}

Status Writer::below(pugi::xml_node parent, int above, double up, int vertex, int depth) {
  const VertexKind kind = topology_.vertex(vertex).kind;
  if (written_[at(vertex)] || kind == VertexKind::cpu) return {};
  if (depth > deepest_element)
    return Status(Code::unsupported, fmt::format("{} is more than {} PCIe links below its CPU",
                                                 topology_.vertex(vertex).name, deepest_element));
  written_[at(vertex)] = true;
  if (kind == VertexKind::root_port) return all_below(parent, above, vertex, depth);
  pugi::xml_node element = parent.append_child("pci");
  if (topology_.vertex(above).kind == VertexKind::root_port) set(element, "root_port", bus_id_[at(above)]);
  set(element, "busid", bus_id_[at(vertex)]);
  set(element, "class", kind == VertexKind::gpu ? "0x030200" : kind == VertexKind::nic ? "0x020700" : "0x060400");
  const auto [transfers, width] = nearest_pcie(up);
  set(element, "link_speed", fmt::format("{:.1f} GT/s PCIe", transfers));
  set(element, "link_width", fmt::format("{}", width));
  if (kind == VertexKind::gpu) gpu(element, vertex);
  if (kind == VertexKind::nic) nic(element, vertex);
  if (kind == VertexKind::pcie_switch) return all_below(element, above, vertex, depth);
  return {};
}

Status Writer::all_below(pugi::xml_node parent, int above, int vertex, int depth) {
  for (const int l : leaving_[at(vertex)])
    if (const Link& link = topology_.link(l); link.kind == LinkKind::pcie && link.to != above)
      PACE_TRY(below(parent, vertex, link.bandwidth, link.to, depth + 1));
  return {};
}

void Writer::gpu(pugi::xml_node parent, int vertex) {
  const int capability = topology_.vertex(vertex).compute_capability;
  pugi::xml_node element = parent.append_child("gpu");
  const auto number = std::ranges::find(topology_.gpus(), vertex) - topology_.gpus().begin();
  set(element, "dev", fmt::format("{}", device_[static_cast<std::size_t>(number)]));
  set(element, "sm", fmt::format("{}", capability));
  set(element, "rank", fmt::format("{}", number));
  set(element, "gdr", "1");
  for (const int l : leaving_[at(vertex)]) {
    const Link& link = topology_.link(l);
    if (link.kind == LinkKind::c2c) {
      pugi::xml_node c2c = element.append_child("c2c");
      set(c2c, "bw", fmt::format("{}", link.bandwidth * 1000));
      set(c2c, "count", "1");
    }
    if (link.kind != LinkKind::nvlink) continue;
    const bool direct = topology_.vertex(link.to).kind == VertexKind::gpu;
    pugi::xml_node nvlink = element.append_child("nvlink");
    const bool everywhere = topology_.vertex(link.to).node < 0;  // joins machines
    set(nvlink, "target", everywhere ? "fffffff:ff:ff.0" : bus_id_[at(link.to)]);
    const auto count = std::max(1L, std::lround(link.bandwidth / nvlink_rate(capability)));
    set(nvlink, "count", fmt::format("{}", count));
    set(nvlink, "tclass", direct ? "0x030200" : "0x068000");
  }
}

void Writer::nic(pugi::xml_node parent, int vertex) {
  pugi::xml_node element = parent.append_child("nic");
  double gbs = 0;
  double latency = 0;
  for (const int l : leaving_[at(vertex)]) {
    const Link& link = topology_.link(l);
    if (link.kind != LinkKind::network) continue;
    gbs += link.bandwidth;
    latency = std::max(latency, link.latency);
  }
  if (gbs == 0) return;
  pugi::xml_node net = element.append_child("net");
  const std::string& name = topology_.vertex(vertex).name;
  set(net, "name", name.substr(name.find('/') + 1));
  set(net, "dev", fmt::format("{}", nics_++));
  set(net, "speed", fmt::format("{:.0f}", gbs * 8000));
  set(net, "port", "1");
  set(net, "latency", fmt::format("{:.6f}", latency));
  set(net, "gdr", "1");
}

}  // namespace

Result<std::string> write_nccl_topology(const Topology& topology) { return Writer(topology).write(); }

std::vector<int> nccl_devices(const Topology& topology) {
  std::vector<int> devices;
  std::map<int, int> gpus_of;  // node: GPUs so far
  for (const int gpu : topology.gpus()) {
    const Vertex& vertex = topology.vertex(gpu);
    const int number = gpus_of[vertex.node]++;
    devices.push_back(vertex.device >= 0 ? vertex.device : number);
  }
  return devices;
}

std::string write_nccl_rings(const RingPacking& packing, const std::vector<int>& devices, std::string_view type) {
  constexpr Flow most_channels = 32;
  Flow speed = 0;
  Flow least = unlimited;
  for (const Ring& ring : packing.rings) {
    speed = std::gcd(speed, ring.rate);
    least = std::min(least, ring.rate);
  }
  const bool by_speed = speed > 0 && packing.rate / speed <= most_channels;
  if (!by_speed) speed = packing.rings.empty() ? 0 : least;

  pugi::xml_document document;
  pugi::xml_node graphs = document.append_child("graphs");
  set(graphs, "version", "1");
  pugi::xml_node graph = graphs.append_child("graph");
  set(graph, "id", "0");
  set(graph, "pattern", "4");
  set(graph, "crossnic", "0");
  const Flow channels = by_speed ? packing.rate / speed : static_cast<Flow>(packing.rings.size());
  set(graph, "nchannels", fmt::format("{}", channels));
  const std::string gbs = fmt::format("{}", static_cast<double>(speed) / units_per_gbs);
  for (const char* key : {"speedintra", "speedinter"}) set(graph, key, gbs);
  set(graph, "latencyinter", "0");
  set(graph, "typeintra", std::string(type));
  set(graph, "typeinter", "PIX");
  set(graph, "samechannels", "0");
  for (const Ring& ring : packing.rings) {
    for (Flow i = 0; i < (by_speed ? ring.rate / speed : 1); ++i) {
      pugi::xml_node channel = graph.append_child("channel");
      for (const int gpu : ring.order) set(channel.append_child("gpu"), "dev", fmt::format("{}", devices[at(gpu)]));
    }
  }
  return text_of(document);
}

}  // namespace paceline
