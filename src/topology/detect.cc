#include "topology/detect.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <pugixml.hpp>
#include <sstream>

#include "topology/nccl_xml.h"
#include "topology/nccl_xml_element.h"
#include "topology/sysfs.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

// The number at the beginning of a text ("32.0 GT/s PCIe"); 0 if there is none.
double leading_number(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

struct Cpu {
  std::string vendor, family, model;
};

Cpu first_cpu(const fs::path& root) {
  Cpu cpu;
  std::istringstream lines(text_of(root / "proc/cpuinfo"));
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("vendor_id")) cpu.vendor = value;
    if (line.starts_with("cpu family")) cpu.family = value;
    if (line.starts_with("model\t")) cpu.model = value;
  }
  return cpu;
}

// Those with CPUs: memory without CPUs is a GPU's or an expander's.
std::vector<long> numa_nodes(const fs::path& root) {
  std::vector<long> numbers;
  const fs::path nodes = root / "sys/devices/system/node";
  for (const std::string& name : names_in(nodes)) {
    long number = -1;
    if (!name.starts_with("node")) continue;
    std::from_chars(name.data() + 4, name.data() + name.size(), number);
    if (number >= 0 && !text_of(nodes / name / "cpulist").empty()) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

bool is_gpu(const std::string& kind, const std::string& vendor) {
  const bool display = kind.starts_with("0x03") || kind.starts_with("0x12");
  return display && (vendor == "0x10de" || vendor == "0x1002");
}

class Machine {
 public:
  Machine(const fs::path& root, const std::optional<std::vector<NvmlGpu>>& gpus) : root_(root), gpus_(gpus) {}
  std::string describe();

 private:
  void cpus();
  void add_gpus();
  void add_nics();
  [[nodiscard]] fs::path device(const std::string& bus_id) const { return root_ / "sys/bus/pci/devices" / bus_id; }
  pugi::xml_node cpu_of(const std::string& bus_id);
  pugi::xml_node element(const std::string& bus_id);
  pugi::xml_node add_element(pugi::xml_node above, const std::string& bus_id, const std::string& port);
  void net(pugi::xml_node nic, const std::string& name, double mbits);

  fs::path root_;
  const std::optional<std::vector<NvmlGpu>>& gpus_;
  pugi::xml_document document_;
  std::map<long, pugi::xml_node> cpus_;                // by NUMA node
  std::map<std::string, pugi::xml_node> cpu_of_port_;  // by a root port's bus id
  std::map<std::string, pugi::xml_node> elements_;     // by bus id
  int nets_ = 0;
};

std::string Machine::describe() {
  set(document_.append_child("system"), "version", "1");
  cpus();
  add_gpus();
  add_nics();
  std::ostringstream text;
  document_.save(text, "  ", pugi::format_indent | pugi::format_no_declaration);
  return std::move(text).str();
}

void Machine::cpus() {
  const Cpu model = first_cpu(root_);
  const auto add = [&](long number) {
    pugi::xml_node cpu = document_.document_element().append_child("cpu");
    set(cpu, "numaid", fmt::format("{}", number));
    set(cpu, "arch", "x86_64");
    set(cpu, "vendor", model.vendor);
    set(cpu, "familyid", model.family);
    set(cpu, "modelid", model.model);
    cpus_.emplace(number, cpu);
  };
  for (const long number : numa_nodes(root_)) add(number);
  if (cpus_.empty()) add(0);
}

pugi::xml_node Machine::cpu_of(const std::string& bus_id) {
  const auto found = cpus_.find(number_of(device(bus_id) / "numa_node", -1));
  return found == cpus_.end() ? cpus_.begin()->second : found->second;
}

// `port`: the bridge that the device's link ends at; the slower of the two sets the link's speed.
pugi::xml_node Machine::add_element(pugi::xml_node above, const std::string& bus_id, const std::string& port) {
  pugi::xml_node pci = above.append_child("pci");
  set(pci, "busid", bus_id);
  set(pci, "class", text_of(device(bus_id) / "class"));
  double speed = 0;
  double width = 0;
  for (const std::string& end : {bus_id, port}) {
    if (end.empty()) continue;
    const double its_speed = leading_number(text_of(device(end) / "max_link_speed"));
    const double its_width = leading_number(text_of(device(end) / "max_link_width"));
    // 255 lanes: a virtual machine that does not say.
    if (its_speed > 0) speed = speed == 0 ? its_speed : std::min(speed, its_speed);
    if (its_width > 0 && its_width <= 32) width = width == 0 ? its_width : std::min(width, its_width);
  }
  if (speed > 0) set(pci, "link_speed", fmt::format("{:.1f} GT/s PCIe", speed));
  if (width > 0) set(pci, "link_width", fmt::format("{:.0f}", width));
  elements_.emplace(bus_id, pci);
  return pci;
}

// The element of a device, below those of the switches above it. The way is: root port, an attribute of the element
// below it, then two bridges for each switch, its upstream port (which stands for the switch) and a downstream port.
pugi::xml_node Machine::element(const std::string& bus_id) {
  if (const auto found = elements_.find(bus_id); found != elements_.end()) return found->second;
  const auto path = pci_path(device(bus_id));
  const pugi::xml_node cpu =
      path.size() > 1 ? cpu_of_port_.try_emplace(path.front(), cpu_of(bus_id)).first->second : cpu_of(bus_id);
  pugi::xml_node below = cpu;
  const auto add = [&](const std::string& id, const std::string& port) {
    const bool is_first = below == cpu;
    below = add_element(below, id, port);
    if (is_first && path.size() > 1) set(below, "root_port", path.front());
  };
  for (std::size_t i = 1; i + 2 < path.size(); i += 2) {
    const auto found = elements_.find(path[i]);
    if (found != elements_.end())
      below = found->second;
    else
      add(path[i], path[i - 1]);
  }
  add(bus_id, path.size() > 1 ? path[path.size() - 2] : "");
  return below;
}

void Machine::add_gpus() {
  std::vector<NvmlGpu> gpus;
  if (gpus_) {
    gpus = *gpus_;
  } else {
    for (const std::string& bus_id : names_in(root_ / "sys/bus/pci/devices"))
      if (is_gpu(text_of(device(bus_id) / "class"), text_of(device(bus_id) / "vendor")))
        gpus.push_back({.bus_id = bus_id});
  }
  int number = 0;
  for (const NvmlGpu& facts : gpus) {
    pugi::xml_node gpu = element(facts.bus_id).append_child("gpu");
    set(gpu, "dev", fmt::format("{}", number++));
    set(gpu, "sm", fmt::format("{}", facts.compute_capability));
    for (const NvmlGpu::Nvlinks& links : facts.nvlinks) {
      pugi::xml_node nvlink = gpu.append_child("nvlink");
      set(nvlink, "target", links.target);
      set(nvlink, "count", fmt::format("{}", links.count));
      set(nvlink, "tclass", links.nvswitch ? "0x068000" : "0x030200");
    }
  }
}

void Machine::net(pugi::xml_node nic, const std::string& name, double mbits) {
  pugi::xml_node net = nic.append_child("net");
  set(net, "name", name);
  set(net, "dev", fmt::format("{}", nets_++));
  if (mbits > 0) set(net, "speed", fmt::format("{:.0f}", mbits));
}

// InfiniBand devices first: the network interface of one that is both is the same NIC again.
void Machine::add_nics() {
  const fs::path devices = root_ / "sys/class/infiniband";
  for (const std::string& name : names_in(devices)) {
    const auto path = pci_path(devices / name / "device");
    if (path.empty()) continue;
    pugi::xml_node pci = element(path.back());
    pugi::xml_node nic = pci.child("nic").empty() ? pci.append_child("nic") : pci.child("nic");
    for (const std::string& port : names_in(devices / name / "ports")) {
      const fs::path where = devices / name / "ports" / port;
      // "4: ACTIVE"; "400 Gb/sec (4X NDR)"
      if (!text_of(where / "state").starts_with("4")) continue;
      net(nic, name, 1000 * leading_number(text_of(where / "rate")));
    }
  }
  const fs::path interfaces = root_ / "sys/class/net";
  for (const std::string& name : names_in(interfaces)) {
    const auto path = pci_path(interfaces / name / "device");
    if (path.empty() || text_of(interfaces / name / "operstate") == "down") continue;  // virtual, or nothing plugged in
    pugi::xml_node pci = element(path.back());
    if (!pci.child("nic").empty()) continue;
    net(pci.append_child("nic"), name, static_cast<double>(number_of(interfaces / name / "speed", 0)));
  }
}

}  // namespace

std::string describe_machine(const fs::path& root, const std::optional<std::vector<NvmlGpu>>& gpus) {
  return Machine(root, gpus).describe();
}

std::string describe_parts(const fs::path& root) {
  const Cpu cpu = first_cpu(root);
  std::string text = fmt::format("CPU {} {} {}\n", cpu.vendor, cpu.family, cpu.model);
  for (const long node : numa_nodes(root)) text += fmt::format("NUMA node {}\n", node);
  const fs::path devices = root / "sys/bus/pci/devices";
  for (const std::string& bus_id : names_in(devices)) {
    const std::string kind = text_of(devices / bus_id / "class");
    const std::string vendor = text_of(devices / bus_id / "vendor");
    const bool nic = kind.starts_with("0x02");
    if (nic || is_gpu(kind, vendor))
      text += fmt::format("PCI {} {} {} {}\n", bus_id, kind, vendor, text_of(devices / bus_id / "device"));
  }
  return text;
}

Result<Topology> detect_topology() { return read_nccl_machine(describe_machine("/", nvml_gpus())); }

}  // namespace paceline
