#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <system_error>

#include "base/wrong.h"
#include "topology/link_rates.h"
#include "topology/nccl_xml.h"
#include "topology/nccl_xml_element.h"

namespace paceline {
namespace {

// Machines have fewer: NCCL itself takes a few hundred of a kind, on all machines together. Each two CPUs of a machine
// have a link.
constexpr std::size_t most_cpus = 128;
constexpr std::size_t most_devices = 16'384;

// "the pci element 0000:16:00.0", for messages.
std::string describe(const pugi::xml_node& element) {
  for (const char* key : {"busid", "numaid", "dev", "name", "target"})
    if (const auto attribute = element.attribute(key); !attribute.empty())
      return fmt::format("the {} element with {} {:.40}", element.name(), key, attribute.value());
  return fmt::format("a {:.40} element", element.name());
}

// A number at the beginning of an attribute ("32.0 GT/s PCIe"); nothing if there is no such attribute or it is empty.
Result<std::optional<double>> number(const pugi::xml_node& element, const char* key) {
  const std::string_view text = element.attribute(key).value();
  if (text.empty()) return std::optional<double>();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool rest = end != text.data() + text.size() && *end != ' ';
  if (error != std::errc() || rest || !(value >= -1e9 && value <= 1e9))
    return wrong(fmt::format("{}: {} is '{:.40}', not a number", describe(element), key, text));
  return std::optional(value);
}

// An element that becomes a vertex.
struct Device {
  Vertex vertex;
  pugi::xml_node element;
  int above = -1;  // device
  Rating up;       // of the link to it
  int order = 0;   // GPUs: dev
};

class Reader {
 public:
  Status system(const pugi::xml_node& root);
  Result<Topology> topology();

 private:
  Status cpu(const pugi::xml_node& element);
  Status pci(const pugi::xml_node& element, int above, int depth);
  Status gpu(const pugi::xml_node& element, int above, Rating up, std::string bus_id);
  Status nic(const pugi::xml_node& element, int above, std::optional<Rating> up);
  Result<int> root_port(const std::string& bus_id, int above, Rating below);
  Result<Rating> pcie(const pugi::xml_node& element) const;
  Status nvlinks(const Device& gpu, Topology& topology);
  std::string free_name(int node, std::string_view wanted);
  int add(Device device);

  std::vector<Device> devices_;
  std::set<std::string> names_;
  std::map<std::string, int> taken_;          // by name without its number: the last number
  std::map<std::string, int> hosts_;          // hash: node
  std::map<std::string, int> nic_named_;      // node and net: device
  std::map<int, Rating> network_;             // of NICs, by device
  std::vector<std::pair<int, double>> cpus_;  // device, GB/s to other sockets
  std::map<std::string, int> gpu_at_;         // bus id: device
  std::map<std::string, int> root_port_at_;   // bus id: device
  std::map<std::string, int> switch_at_;      // NVSwitch: vertex
  std::vector<int> place_;                    // of devices: vertices
  int node_ = 0;
};

// A name that is not taken yet, for a vertex of this node.
std::string Reader::free_name(int node, std::string_view wanted) {
  const std::string plain =
      hosts_.size() > 1 && node >= 0 ? fmt::format("node{}/{}", node, wanted) : std::string(wanted);
  std::string name = plain;
  for (int& last = taken_.try_emplace(plain, 1).first->second; !names_.insert(name).second;)
    name = fmt::format("{}.{}", plain, ++last);
  return name;
}

int Reader::add(Device device) {
  device.vertex.node = node_;
  device.vertex.name = free_name(node_, device.vertex.name);
  devices_.push_back(std::move(device));
  return static_cast<int>(devices_.size()) - 1;
}

Status Reader::system(const pugi::xml_node& root) {
  const auto version = number(root, "version");
  PACE_TRY(version.status());
  if (*version && **version != 1)
    return wrong(fmt::format("version {} of NCCL's topology XML, but only version 1 is known", **version));
  const auto cpus = root.children("cpu");
  std::map<int, std::size_t> cpus_of;  // by node
  for (const pugi::xml_node& element : cpus) {
    const auto host = hosts_.try_emplace(element.attribute("host_hash").value(), static_cast<int>(hosts_.size())).first;
    ++cpus_of[host->second];
  }
  for (const auto& [node, count] : cpus_of)
    if (count > most_cpus) return wrong(fmt::format("{} CPUs of one machine are more than {}", count, most_cpus));
  for (const pugi::xml_node& element : cpus) PACE_TRY(cpu(element));
  if (devices_.size() > most_devices)
    return wrong(fmt::format("{} GPUs, CPUs, switches and NICs are more than {}", devices_.size(), most_devices));
  return {};
}

Status Reader::cpu(const pugi::xml_node& element) {
  node_ = hosts_[element.attribute("host_hash").value()];
  const auto family = number(element, "familyid");
  PACE_TRY(family.status());
  const auto model = number(element, "modelid");
  PACE_TRY(model.status());
  const auto numa = number(element, "numaid");
  PACE_TRY(numa.status());
  const int index =
      add({.vertex = {.kind = VertexKind::cpu,
                      .name = fmt::format("cpu{:.0f}", numa->value_or(static_cast<double>(cpus_.size())))},
           .element = element,
           .up = {}});
  cpus_.emplace_back(index, cpu_model(element.attribute("vendor").value(), static_cast<int>(family->value_or(0)),
                                      static_cast<int>(model->value_or(0)))
                                .between);
  for (const pugi::xml_node& child : element.children("pci")) PACE_TRY(pci(child, index, 1));
  for (const pugi::xml_node& child : element.children("nic")) PACE_TRY(nic(child, index, std::nullopt));
  return {};
}

// The link of a pci element. As NCCL does, third generation and 16 lanes where the file does not know; 255 lanes: a
// virtual machine that does not say.
Result<Rating> Reader::pcie(const pugi::xml_node& element) const {
  const std::string_view unknown = element.attribute("link_speed").value();
  std::optional<double> transfers;
  if (!unknown.starts_with("Unknown")) {
    const auto speed = number(element, "link_speed");
    PACE_TRY(speed.status());
    transfers = *speed;
  }
  const auto width = number(element, "link_width");
  PACE_TRY(width.status());
  const double known = width->value_or(0);
  const double lanes = known == 0 || known == 255 ? 16 : known;
  if (lanes < 0 || lanes > 64)
    return wrong(fmt::format("{}: a link_width of {}: it must be from 0 to 64", describe(element), lanes));
  for (const PcieGeneration& generation : pcie_generations())
    if (generation.transfers == transfers.value_or(8)) return Rating{lanes * generation.lane, pcie_latency};
  return wrong(
      fmt::format("{}: a link_speed of '{:.40}': PCIe has 2.5, 5, 8, 16, 32 and 64 GT/s", describe(element), unknown));
}

// What hangs on a root port, several functions of one device even, shares one link, which is as fast as any of them.
Result<int> Reader::root_port(const std::string& bus_id, int above, Rating below) {
  const auto [found, added] = root_port_at_.try_emplace(fmt::format("{} {}", node_, bus_id), -1);
  if (added)
    found->second = add({.vertex = {.kind = VertexKind::root_port, .name = "port" + bus_id, .bus_id = bus_id},
                         .element = {},
                         .above = above,
                         .up = {}});
  Device& port = devices_[static_cast<std::size_t>(found->second)];
  if (port.above != above) return wrong(fmt::format("the root port {:.40} is in two places", bus_id));
  port.up.bandwidth = std::max(port.up.bandwidth, below.bandwidth);
  return found->second;
}

Status Reader::pci(const pugi::xml_node& element, int above, int depth) {
  if (depth > deepest_element)
    return wrong(fmt::format("{} is nested more than {} deep", describe(element), deepest_element));
  const auto up = pcie(element);
  PACE_TRY(up.status());
  if (const auto named = element.attribute("root_port"); !named.empty()) {
    const auto port = root_port(named.value(), above, *up);
    PACE_TRY(port.status());
    above = *port;
  }
  const std::string bus_id = element.attribute("busid").value();
  for (const pugi::xml_node& child : element.children("gpu")) PACE_TRY(gpu(child, above, *up, bus_id));
  for (const pugi::xml_node& child : element.children("nic")) PACE_TRY(nic(child, above, *up));
  if (element.child("pci").empty()) return {};
  const int index = add({.vertex = {.kind = VertexKind::pcie_switch, .name = "pci" + bus_id, .bus_id = bus_id},
                         .element = element,
                         .above = above,
                         .up = *up});
  for (const pugi::xml_node& child : element.children("pci")) PACE_TRY(pci(child, index, depth + 1));
  return {};
}

Status Reader::gpu(const pugi::xml_node& element, int above, Rating up, std::string bus_id) {
  const auto capability = number(element, "sm");
  PACE_TRY(capability.status());
  const auto device = number(element, "dev");
  PACE_TRY(device.status());
  const int order = static_cast<int>(device->value_or(0));
  const int index = add({.vertex = {.kind = VertexKind::gpu,
                                    .name = fmt::format("gpu{}", order),
                                    .bus_id = bus_id,
                                    .compute_capability = static_cast<int>(capability->value_or(0)),
                                    .device = static_cast<int>(device->value_or(-1))},
                         .element = element,
                         .above = above,
                         .up = up,
                         .order = order});
  if (bus_id.empty()) return {};
  // Several GPUs of one address are parts of one.
  const auto [found, added] = gpu_at_.try_emplace(fmt::format("{} {}", node_, bus_id), index);
  if (!added && devices_[static_cast<std::size_t>(found->second)].element.parent() != element.parent())
    return wrong(fmt::format("two pci elements have the busid {:.40}", bus_id));
  return {};
}

// A NIC without pci element hangs on the CPU as fast as its network is; the file lists it under every CPU.
Status Reader::nic(const pugi::xml_node& element, int above, std::optional<Rating> up) {
  double mbits = 0;  // of all ports
  double latency = 0;
  std::string name;
  for (const pugi::xml_node& net : element.children("net")) {
    const auto speed = number(net, "speed");
    PACE_TRY(speed.status());
    const auto late = number(net, "latency");
    PACE_TRY(late.status());
    mbits += speed->value_or(0) > 0 ? **speed : 10000;  // NCCL's own guess
    latency = std::max(latency, late->value_or(0));
    if (name.empty()) name = net.attribute("name").value();
  }
  if (mbits > 1e9) return wrong(fmt::format("{}: a speed of {} Mbit/s", describe(element), mbits));
  if (name.empty()) name = "nic";
  const Rating network{mbits / 8000, latency > 0 ? latency : network_latency};
  const std::string key = fmt::format("{} {}", node_, name);
  const auto before = nic_named_.find(key);
  if (!up && before != nic_named_.end()) return {};
  const int index = add({.vertex = {.kind = VertexKind::nic,
                                    .name = name,
                                    .bus_id = up ? element.parent().attribute("busid").value() : ""},
                         .element = element,
                         .above = above,
                         .up = up.value_or(Rating{std::max(network.bandwidth, 1.0), pcie_latency})});
  nic_named_.emplace(key, index);
  if (mbits > 0) network_[index] = network;
  return {};
}

Status Reader::nvlinks(const Device& gpu, Topology& topology) {
  const int here = place_[static_cast<std::size_t>(&gpu - devices_.data())];
  for (const pugi::xml_node& child : gpu.element.children("nvlink")) {
    const auto count = number(child, "count");
    PACE_TRY(count.status());
    if (count->value_or(1) < 0 || count->value_or(1) > 1000)
      return wrong(fmt::format("{}: a count of {}", describe(child), **count));
    const Rating rating{count->value_or(1) * nvlink_rate(gpu.vertex.compute_capability), nvlink_latency};
    if (rating.bandwidth == 0) continue;
    const std::string target = child.attribute("target").value();
    const std::string_view kind = child.attribute("tclass").value();
    if (kind.starts_with("0x0680") && kind != "0x068001") {
      // Virtual machines do not see the NVSwitches: they have one address for all, on all machines that these join.
      const bool virtual_one = target.starts_with("ffffff");
      const int node = virtual_one && hosts_.size() > 1 ? -1 : gpu.vertex.node;
      const auto [found, added] = switch_at_.try_emplace(fmt::format("{} {}", node, target), -1);
      if (added) {
        std::string name = fmt::format("nvswitch{}", switch_at_.size() - 1);
        while (!names_.insert(name).second) name += "'";
        found->second = topology.add(
            {.kind = VertexKind::nvswitch, .name = std::move(name), .node = node, .bus_id = virtual_one ? "" : target});
      }
      topology.connect(here, found->second, LinkKind::nvlink, rating);
      continue;
    }
    const auto found = gpu_at_.find(fmt::format("{} {}", gpu.vertex.node, target));
    if (found == gpu_at_.end()) continue;
    const int there = place_[static_cast<std::size_t>(found->second)];
    if (there == here) return wrong(fmt::format("{} leads to its own GPU", describe(child)));
    topology.link(here, there, LinkKind::nvlink, rating);
  }
  for (const pugi::xml_node& child : gpu.element.children("c2c")) {
    const auto count = number(child, "count");
    PACE_TRY(count.status());
    const auto bandwidth = number(child, "bw");  // MB/s
    PACE_TRY(bandwidth.status());
    int cpu = gpu.above;
    while (devices_[static_cast<std::size_t>(cpu)].above >= 0) cpu = devices_[static_cast<std::size_t>(cpu)].above;
    const double gbs = bandwidth->value_or(0) * count->value_or(1) / 1000;
    if (gbs > 0) topology.connect(here, place_[static_cast<std::size_t>(cpu)], LinkKind::c2c, {gbs, nvlink_latency});
  }
  return {};
}

Result<Topology> Reader::topology() {
  Topology topology;
  place_.assign(devices_.size(), -1);
  std::vector<std::size_t> gpus;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const Vertex& vertex = devices_[i].vertex;
    if (vertex.kind == VertexKind::gpu)
      gpus.push_back(i);
    else
      place_[i] = topology.add(vertex);
  }
  std::stable_sort(gpus.begin(), gpus.end(), [&](std::size_t a, std::size_t b) {
    const Device& left = devices_[a];
    const Device& right = devices_[b];
    return std::pair(left.vertex.node, left.order) < std::pair(right.vertex.node, right.order);
  });
  for (const std::size_t i : gpus) place_[i] = topology.add(devices_[i].vertex);

  for (std::size_t i = 0; i < devices_.size(); ++i)
    if (devices_[i].above >= 0)
      topology.connect(place_[i], place_[static_cast<std::size_t>(devices_[i].above)], LinkKind::pcie, devices_[i].up);
  for (std::size_t a = 0; a < cpus_.size(); ++a) {
    for (std::size_t b = a + 1; b < cpus_.size(); ++b) {
      const int from = place_[static_cast<std::size_t>(cpus_[a].first)];
      const int to = place_[static_cast<std::size_t>(cpus_[b].first)];
      if (topology.vertex(from).node == topology.vertex(to).node)
        topology.connect(from, to, LinkKind::socket, {std::min(cpus_[a].second, cpus_[b].second), socket_latency});
    }
  }
  for (const std::size_t i : gpus) PACE_TRY(nvlinks(devices_[i], topology));
  if (!network_.empty()) {
    const int network = topology.add(VertexKind::network_switch, free_name(-1, "network"), -1);
    for (const auto& [nic, rating] : network_)
      topology.connect(place_[static_cast<std::size_t>(nic)], network, LinkKind::network, rating);
  }
  return topology;
}

}  // namespace

Result<Topology> read_nccl_topology(std::string_view xml) {
  auto topology = read_nccl_machine(xml);
  if (topology.ok() && topology->gpus().empty()) return wrong("the topology has no GPU");
  return topology;
}

Result<Topology> read_nccl_machine(std::string_view xml) {
  pugi::xml_document document;
  const auto parsed = document.load_buffer(xml.data(), xml.size());
  if (!parsed)
    return wrong(fmt::format("NCCL's topology XML cannot be read at byte {}: {}", parsed.offset, parsed.description()));
  const pugi::xml_node root = document.document_element();
  if (std::string_view(root.name()) != "system")
    return wrong(fmt::format("NCCL's topology XML begins with a system element, not '{:.40}'", root.name()));
  Reader reader;
  PACE_TRY(reader.system(root));
  auto topology = reader.topology();
  if (topology.ok() && !topology->gpus().empty()) PACE_TRY(validate(*topology));
  return topology;
}

}  // namespace paceline
