#include "topology/detect.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "topology/nccl_xml.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

// A file system as Linux shows it, made of what a test says.
class FakeMachine {
 public:
  FakeMachine() {
    std::string pattern = (fs::temp_directory_path() / "paceline-detect-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  ~FakeMachine() { fs::remove_all(root_); }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;
  [[nodiscard]] const fs::path& root() const { return root_; }

  void file(const fs::path& where, const std::string& text) const {
    fs::create_directories((root_ / where).parent_path());
    std::ofstream(root_ / where) << text << "\n";
  }
  void link(const fs::path& where, const fs::path& to) const {
    fs::create_directories((root_ / where).parent_path());
    fs::create_symlink(fs::relative(root_ / to, (root_ / where).parent_path()), root_ / where);
  }
  void cpus(int nodes, const std::string& family_and_model) const {
    for (int i = 0; i < nodes; ++i)
      file("sys/devices/system/node/node" + std::to_string(i) + "/cpulist", i == 0 ? "0-31" : "32-63");
    file("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n" + family_and_model + "\n\nprocessor\t: 1");
  }
  // `path`: "0000:00:01.0/0000:01:00.0": the last is the device.
  fs::path pci(const std::string& path, const std::string& kind, int numa, const std::string& speed = "",
               const std::string& width = "") const {
    const fs::path device = fs::path("sys/devices/pci0000:00") / path;
    file(device / "class", kind);
    file(device / "vendor", "0x10de");
    file(device / "numa_node", std::to_string(numa));
    if (!speed.empty()) file(device / "max_link_speed", speed);
    if (!width.empty()) file(device / "max_link_width", width);
    link("sys/bus/pci/devices" / device.filename(), device);
    return device;
  }

 private:
  fs::path root_;
};

const char* const sapphire_rapids = "cpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon";

// Two sockets; below each one PCIe switch with two GPUs and an InfiniBand NIC.
void two_sockets(const FakeMachine& machine) {
  machine.cpus(2, sapphire_rapids);
  for (int socket = 0; socket < 2; ++socket) {
    const std::string s = std::to_string(4 * socket);  // first digit of buses
    std::string path = "0000:" + s + "0:01.0";
    machine.pci(path, "0x060400", socket, "32.0 GT/s PCIe", "16");
    path += "/0000:" + s + "1:00.0";
    machine.pci(path, "0x060400", socket, "32.0 GT/s PCIe", "16");
    for (int port = 0; port < 3; ++port) {
      const std::string below = path + "/0000:" + s + "2:0" + std::to_string(port) + ".0";
      machine.pci(below, "0x060400", socket, "32.0 GT/s PCIe", "16");
      const std::string device = below + "/0000:" + s + std::to_string(3 + port) + ":00.0";
      if (port < 2) {
        machine.pci(device, "0x030200", socket, "16.0 GT/s PCIe", "16");
        continue;
      }
      const fs::path nic = machine.pci(device, "0x020700", socket, "32.0 GT/s PCIe", "16");
      const std::string name = "mlx5_" + std::to_string(socket);
      machine.file(nic / "infiniband" / name / "ports/1/state", "4: ACTIVE");
      machine.file(nic / "infiniband" / name / "ports/1/rate", "400 Gb/sec (4X NDR)");
      machine.link(nic / "infiniband" / name / "device", nic);
      machine.link("sys/class/infiniband/" + name, nic / "infiniband" / name);
      machine.file(nic / "net/ib0/operstate", "up");
      machine.link(nic / "net/ib0/device", nic);
      machine.link("sys/class/net/ib" + std::to_string(socket), nic / "net/ib0");
    }
  }
}

double between(const Topology& topology, const std::string& a, const std::string& b) {
  for (const Link& link : topology.links())
    if (topology.vertex(link.from).name == a && topology.vertex(link.to).name == b) return link.bandwidth;
  return 0;
}

Topology read(const FakeMachine& machine, const std::optional<std::vector<NvmlGpu>>& gpus) {
  auto topology = read_nccl_machine(describe_machine(machine.root(), gpus));
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  return *topology;
}

}  // namespace

TEST_CASE("two sockets with a switch, two GPUs and a NIC each") {
  const FakeMachine machine;
  two_sockets(machine);
  const Topology topology = read(machine, std::nullopt);
  CHECK(topology.gpus().size() == 4);
  CHECK(topology.of_kind(VertexKind::cpu).size() == 2);
  CHECK(topology.of_kind(VertexKind::pcie_switch).size() == 2);
  CHECK(topology.of_kind(VertexKind::root_port).size() == 2);
  CHECK(topology.of_kind(VertexKind::nic).size() == 2);  // ib0 is mlx5_0 again
  CHECK(topology.links().size() == 2 * (1 + 2 + 2 + 4 + 2 + 2));
  CHECK(between(topology, "cpu0", "cpu1") == 4 * 48.0);
  CHECK(between(topology, "cpu1", "port0000:40:01.0") == doctest::Approx(63.0).epsilon(0.001));
  CHECK(between(topology, "port0000:40:01.0", "pci0000:41:00.0") == doctest::Approx(63.0).epsilon(0.001));
  CHECK(between(topology, "pci0000:41:00.0", "gpu2") == doctest::Approx(31.5).epsilon(0.001));
  CHECK(between(topology, "mlx5_1", "network") == 50);
  CHECK(topology.vertex(topology.gpus()[3]).bus_id == "0000:44:00.0");
  CHECK(validate(topology).ok());
}

TEST_CASE("with NVML its GPUs count, and their NVLinks") {
  const FakeMachine machine;
  two_sockets(machine);
  const std::vector<NvmlGpu> gpus{
      {"0000:03:00.0", 90, {{"0000:44:00.0", false, 6}, {"0000:07:00.0", true, 4}}},
      {"0000:44:00.0", 90, {{"0000:03:00.0", false, 6}, {"0000:07:00.0", true, 4}}},
  };
  const Topology topology = read(machine, gpus);
  CHECK(topology.gpus().size() == 2);
  CHECK(topology.vertex(topology.gpus()[0]).compute_capability == 90);
  CHECK(between(topology, "gpu0", "gpu1") == 150);
  CHECK(between(topology, "gpu1", "gpu0") == 150);
  CHECK(between(topology, "gpu1", "nvswitch0") == 100);
}

TEST_CASE("the slower end of a link sets its speed, and 255 lanes are unknown") {
  const FakeMachine machine;
  machine.cpus(1, sapphire_rapids);
  machine.pci("0000:00:01.0", "0x060400", 0, "8.0 GT/s PCIe", "8");
  machine.pci("0000:00:01.0/0000:01:00.0", "0x030200", 0, "16.0 GT/s PCIe", "16");
  machine.pci("0000:00:02.0", "0x030200", 0, "Unknown", "255");
  const Topology topology = read(machine, std::nullopt);
  CHECK(between(topology, "gpu1", "port0000:00:01.0") == doctest::Approx(7.88).epsilon(0.001));
  CHECK(between(topology, "port0000:00:01.0", "cpu0") == doctest::Approx(7.88).epsilon(0.001));
  CHECK(between(topology, "gpu0", "cpu0") == doctest::Approx(15.75).epsilon(0.001));
}

TEST_CASE("the functions of one device share the link of their root port") {
  const FakeMachine machine;
  machine.cpus(1, sapphire_rapids);
  machine.pci("0000:00:01.0", "0x060400", 0, "16.0 GT/s PCIe", "16");
  for (const char* function : {"0", "1"}) {
    const fs::path nic = machine.pci("0000:00:01.0/0000:01:00." + std::string(function), "0x020000", 0);
    machine.file(nic / "net/eth" / "operstate", "up");
    machine.link(nic / "net/eth/device", nic);
    machine.link("sys/class/net/eth" + std::string(function), nic / "net/eth");
  }
  const Topology topology = read(machine, std::nullopt);
  REQUIRE(topology.of_kind(VertexKind::root_port).size() == 1);
  CHECK(between(topology, "port0000:00:01.0", "cpu0") == doctest::Approx(31.5).epsilon(0.001));
  CHECK(between(topology, "eth0", "port0000:00:01.0") == doctest::Approx(31.5).epsilon(0.001));
  CHECK(between(topology, "eth1", "port0000:00:01.0") == doctest::Approx(31.5).epsilon(0.001));
  CHECK(between(topology, "eth1", "cpu0") == 0);
}

TEST_CASE("a virtual machine: a NIC of unknown speed, no NUMA node, no GPU") {
  const FakeMachine machine;
  const fs::path nic = machine.pci("0000:00:03.0", "0x020000", -1);
  machine.file(nic / "virtio2/net/eth0/operstate", "up");
  machine.file(nic / "virtio2/net/eth0/speed", "-1");
  machine.link(nic / "virtio2/net/eth0/device", nic / "virtio2");
  machine.link("sys/class/net/eth0", nic / "virtio2/net/eth0");
  machine.file("sys/class/net/lo/operstate", "unknown");
  const Topology topology = read(machine, std::nullopt);
  CHECK(topology.gpus().empty());
  CHECK(topology.of_kind(VertexKind::cpu).size() == 1);
  CHECK(between(topology, "eth0", "network") == 1.25);
}

TEST_CASE("an empty file system is one CPU") {
  const FakeMachine machine;
  CHECK(read(machine, std::nullopt).vertices().size() == 1);
}

TEST_CASE("a GPU that the PCI tree does not show hangs on the first CPU") {
  const FakeMachine machine;
  machine.cpus(2, sapphire_rapids);
  const Topology topology = read(machine, std::vector<NvmlGpu>{{.bus_id = "0000:99:00.0"}});
  CHECK(between(topology, "gpu0", "cpu0") == doctest::Approx(15.75).epsilon(0.001));
}

TEST_CASE("this machine has a CPU") {
  const auto topology = detect_topology();
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  CHECK_FALSE(topology->of_kind(VertexKind::cpu).empty());
}

TEST_CASE("NVML's bus ids become the kernel's") {
  CHECK(kernel_bus_id("00000000:3B:00.0") == "0000:3b:00.0");
  CHECK(kernel_bus_id("00010000:3B:00.0") == "00010000:3b:00.0");
  CHECK(kernel_bus_id("0000:3b:00.0") == "0000:3b:00.0");
}

TEST_CASE(
    "a machine stays the same whatever its links do and whichever interfaces are seen; another NIC makes another") {
  const FakeMachine machine;
  two_sockets(machine);
  const std::string before = describe_parts(machine.root());
  CHECK(before ==
        "CPU GenuineIntel 6 143\nNUMA node 0\nNUMA node 1\n"
        "PCI 0000:03:00.0 0x030200 0x10de \nPCI 0000:04:00.0 0x030200 0x10de \nPCI 0000:05:00.0 0x020700 0x10de \n"
        "PCI 0000:43:00.0 0x030200 0x10de \nPCI 0000:44:00.0 0x030200 0x10de \nPCI 0000:45:00.0 0x020700 0x10de \n");
  const fs::path port = "sys/class/infiniband/mlx5_0/ports/1";
  machine.file(port / "rate", "100 Gb/sec (4X EDR)");
  CHECK(describe_parts(machine.root()) == before);
  machine.file(port / "state", "1: DOWN");
  CHECK(describe_parts(machine.root()) == before);
  fs::remove_all(machine.root() / "sys/class/net");
  fs::remove_all(machine.root() / "sys/class/infiniband");
  CHECK(describe_parts(machine.root()) == before);
  machine.pci("0000:46:00.0", "0x020000", 0);
  CHECK(describe_parts(machine.root()) != before);
}

}  // namespace paceline
