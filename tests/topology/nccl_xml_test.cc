#include "topology/nccl_xml.h"

#include <doctest/doctest.h>

#include <map>
#include <numeric>

#include "api/address_limit.h"
#include "topology/bounds.h"
#include "topology/presets.h"
#include "transport/child.h"

namespace paceline {
namespace {

// Two sockets; a switch with two GPUs and a NIC, and a GPU right below the second socket.
const std::string small = R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79">
    <pci busid="0000:03:00.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">
      <pci busid="0000:06:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="70" rank="1" gdr="1">
          <nvlink target="0000:07:00.0" count="2" tclass="0x030200"/>
          <nvlink target="0000:99:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:07:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="70" rank="0" gdr="1">
          <nvlink target="0000:06:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:08:00.0" class="0x020700" link_speed="8.0 GT/s PCIe" link_width="8">
        <nic>
          <net name="mlx5_0" dev="0" speed="100000" port="1" latency="0.000000" guid="0x1"/>
        </nic>
      </pci>
    </pci>
    <nic><net name="eth0" dev="1" speed="10000" latency="25"/></nic>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79">
    <pci busid="0000:86:00.0" class="0x030200" link_speed="" link_width="0">
      <gpu dev="2" sm="70" rank="2"/>
    </pci>
    <nic><net name="eth0" dev="1" speed="10000" latency="25"/></nic>
  </cpu>
</system>)";

Topology read(const std::string& xml) {
  auto topology = read_nccl_topology(xml);
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  return *topology;
}

std::string error_of(const std::string& xml) {
  const auto topology = read_nccl_topology(xml);
  CHECK(topology.status().code() == Code::invalid_argument);
  return topology.status().message();
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  REQUIRE(text.find(what) != std::string::npos);
  return text.replace(text.find(what), what.size(), by);
}

// GB/s by the names of both ends.
std::map<std::pair<std::string, std::string>, double> links_of(const Topology& topology) {
  std::map<std::pair<std::string, std::string>, double> links;
  for (const Link& link : topology.links())
    links[{topology.vertex(link.from).name, topology.vertex(link.to).name}] += link.bandwidth;
  return links;
}

}  // namespace

TEST_CASE("NCCL's topology XML becomes vertices and links") {
  const Topology topology = read(small);
  std::vector<std::string> gpus;
  for (const int gpu : topology.gpus()) gpus.push_back(topology.vertex(gpu).bus_id);
  CHECK(gpus == std::vector<std::string>{"0000:07:00.0", "0000:06:00.0", "0000:86:00.0"});
  CHECK(topology.vertex(topology.gpus()[0]).compute_capability == 70);
  auto links = links_of(topology);
  CHECK(links[{"gpu0", "gpu1"}] == 50);
  CHECK(links[{"gpu1", "gpu0"}] == 50);
  CHECK(links[{"cpu0", "cpu1"}] == 2 * 19.2);
  CHECK(links[{"gpu0", "pci0000:03:00.0"}] == doctest::Approx(15.754).epsilon(1e-4));
  CHECK(links[{"mlx5_0", "pci0000:03:00.0"}] == doctest::Approx(15.754 / 2).epsilon(1e-4));
  CHECK(links[{"gpu2", "cpu1"}] == doctest::Approx(15.754).epsilon(1e-4));
  CHECK(links[{"mlx5_0", "network"}] == 12.5);
  CHECK(links[{"network", "eth0"}] == 1.25);
  CHECK(links.contains({"eth0", "cpu0"}));
  CHECK(links.size() == 2 * 10);
}

TEST_CASE("NVSwitches are told by their class, virtual ones by their address") {
  const auto gpu = [](int number, const std::string& target) {
    return "<pci busid=\"0000:0" + std::to_string(number) + ":00.0\"><gpu dev=\"" + std::to_string(number) +
           "\" sm=\"90\"><nvlink target=\"" + target + "\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>";
  };
  const Topology plain = read("<system><cpu>" + gpu(1, "0000:c4:00.0") + gpu(2, "0000:c4:00.0") + "</cpu></system>");
  CHECK(plain.of_kind(VertexKind::nvswitch).size() == 1);
  CHECK(links_of(plain)[{"nvswitch0", "gpu2"}] == 450);
  // Two machines with one NVLink network.
  const Topology joined = read("<system><cpu host_hash=\"0x1\">" + gpu(1, "fffffff:ff:ff.0") +
                               "</cpu><cpu host_hash=\"0x2\">" + gpu(1, "fffffff:ff:ff.0") + "</cpu></system>");
  CHECK(joined.nodes() == 2);
  CHECK(joined.of_kind(VertexKind::nvswitch).size() == 1);
  CHECK(links_of(joined)[{"node1/gpu1", "nvswitch0"}] == 450);
}

TEST_CASE("malformed XML is an error that says where") {
  CHECK(error_of("") == "NCCL's topology XML cannot be read at byte 0: No document element found");
  CHECK(error_of("<system").find("NCCL's topology XML cannot be read at byte ") == 0);
  CHECK(error_of("<graphs/>") == "NCCL's topology XML begins with a system element, not 'graphs'");
  CHECK(error_of(replaced(small, "version=\"1\"", "version=\"2\"")) ==
        "version 2 of NCCL's topology XML, but only version 1 is known");
  CHECK(error_of("<system version=\"1\"/>") == "the topology has no GPU");
  CHECK(error_of(replaced(small, "count=\"2\"", "count=\"x2\"")) ==
        "the nvlink element with target 0000:07:00.0: count is 'x2', not a number");
  CHECK(error_of(replaced(small, "count=\"2\"", "count=\"-2\"")) ==
        "the nvlink element with target 0000:07:00.0: a count of -2");
  CHECK(error_of(replaced(small, "8.0 GT/s PCIe", "9 GT/s")) ==
        "the pci element with busid 0000:03:00.0: a link_speed of '9 GT/s': PCIe has 2.5, 5, 8, 16, 32 and 64 GT/s");
  CHECK(error_of(replaced(small, "link_width=\"16\"", "link_width=\"-1\"")) ==
        "the pci element with busid 0000:03:00.0: a link_width of -1: it must be from 0 to 64");
  CHECK(error_of(replaced(small, "0000:06:00.0", "0000:07:00.0")) == "two pci elements have the busid 0000:07:00.0");
  CHECK(error_of(replaced(small, "target=\"0000:07:00.0\"", "target=\"0000:06:00.0\"")) ==
        "the nvlink element with target 0000:06:00.0 leads to its own GPU");
  std::string deep = "<system><cpu>";
  for (int i = 0; i < 100; ++i) deep += "<pci busid=\"0\">";
  for (int i = 0; i < 100; ++i) deep += "</pci>";
  CHECK(error_of(deep + "</cpu></system>") == "the pci element with busid 0 is nested more than 32 deep");
}

TEST_CASE("more of anything than machines have is an error at once") {
  const auto many = [](int count, const std::string& element) {
    std::string xml;
    for (int i = 0; i < count; ++i) xml += element;
    return xml;
  };
  Child child([&] {
    if (!testing::limit_addresses(std::size_t{256} << 20)) return false;
    return read_nccl_topology("<system>" + many(3000, "<cpu/>") + "</system>").status().message() ==
           "3000 CPUs of one machine are more than 128";
  });
  CHECK(child.ended_well());
  CHECK(error_of("<system><cpu>" + many(20'000, "<pci><gpu/></pci>") + "</cpu></system>") ==
        "20001 GPUs, CPUs, switches and NICs are more than 16384");
  CHECK(error_of("<system>" + many(128, "<cpu/>") + "</system>") == "the topology has no GPU");
}

TEST_CASE("what is written reads as the same topology") {
  for (const Preset& row : presets()) {
    INFO(std::string(row.name));
    const auto first = preset(row.name);
    const auto xml = write_nccl_topology(*first);
    REQUIRE_MESSAGE(xml.ok(), xml.status().message());
    const Topology second = read(*xml);
    CHECK(second.gpus().size() == first->gpus().size());
    for (const VertexKind kind : {VertexKind::cpu, VertexKind::pcie_switch, VertexKind::nic, VertexKind::nvswitch})
      CHECK(second.of_kind(kind).size() == first->of_kind(kind).size());
    std::vector<int> gpus(first->gpus().size());
    std::iota(gpus.begin(), gpus.end(), 0);
    const Bounds expected = throughput_bounds(*select(*first, gpus));
    const Bounds found = throughput_bounds(*select(second, gpus));
    CHECK(found.broadcast.gbs() == doctest::Approx(expected.broadcast.gbs()).epsilon(1e-3));
    CHECK(found.all_reduce.gbs() == doctest::Approx(expected.all_reduce.gbs()).epsilon(1e-3));
    // From then on nothing changes any more.
    const auto again = write_nccl_topology(second);
    REQUIRE(again.ok());
    CHECK(*write_nccl_topology(read(*again)) == *again);
  }
}

TEST_CASE("a link that a virtual machine says nothing of is read as one of 16 lanes") {
  for (const char* width : {"", "0", "255"}) {
    INFO(width);
    const std::string lanes = "link_width=\"" + std::string(width) + "\"";
    auto links = links_of(read(replaced(small, "link_width=\"0\"", lanes)));
    CHECK(links[{"gpu2", "cpu1"}] == doctest::Approx(15.754).epsilon(1e-4));
  }
}

TEST_CASE("PCIe links of 16 lanes are written as they were read") {
  for (const char* speed : {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"}) {
    const std::string link = "link_speed=\"" + std::string(speed) + " GT/s PCIe\" link_width=\"16\"";
    const auto xml = write_nccl_topology(
        read("<system><cpu><pci busid=\"0000:01:00.0\" " + link + "><gpu dev=\"0\"/></pci></cpu></system>"));
    REQUIRE(xml.ok());
    CHECK_MESSAGE(xml->find(link) != std::string::npos, *xml);
  }
}

TEST_CASE("root ports are written and read") {
  const Topology first = read(R"(<system><cpu>
    <pci busid="0000:01:00.0" root_port="0000:00:01.0" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:03:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90"/></pci>
    </pci>
    <pci busid="0000:05:00.0" root_port="0000:00:02.0" link_speed="8.0 GT/s PCIe" link_width="16">
      <nic><net name="a" speed="100000"/></nic></pci>
    <pci busid="0000:05:00.1" root_port="0000:00:02.0" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic><net name="b" speed="100000"/></nic></pci>
    </cpu></system>)");
  REQUIRE(first.of_kind(VertexKind::root_port).size() == 2);
  CHECK(first.vertex(first.of_kind(VertexKind::root_port)[0]).bus_id == "0000:00:01.0");
  const auto xml = write_nccl_topology(first);
  REQUIRE_MESSAGE(xml.ok(), xml.status().message());
  const Topology second = read(*xml);
  for (const Topology* topology : {&first, &second}) {
    auto links = links_of(*topology);
    CHECK(links[{"pci0000:01:00.0", "port0000:00:01.0"}] == doctest::Approx(31.5).epsilon(1e-3));
    CHECK(links[{"port0000:00:01.0", "cpu0"}] == doctest::Approx(31.5).epsilon(1e-3));
    CHECK(links[{"a", "port0000:00:02.0"}] == doctest::Approx(15.75).epsilon(1e-3));
    CHECK(links[{"b", "port0000:00:02.0"}] == doctest::Approx(31.5).epsilon(1e-3));
    CHECK(links[{"port0000:00:02.0", "cpu0"}] == doctest::Approx(31.5).epsilon(1e-3));
  }
  CHECK(*write_nccl_topology(second) == *xml);
  CHECK(error_of(R"(<system><cpu><pci root_port="0000:00:01.0"><gpu dev="0"/></pci></cpu>
                    <cpu><pci root_port="0000:00:01.0"><gpu dev="1"/></pci></cpu></system>)") ==
        "the root port 0000:00:01.0 is in two places");
}

TEST_CASE("several GPUs at one address and links beside PCIe are written and read") {
  const Topology first = read(R"(<system><cpu>
    <pci busid="0002:81:00.0" link_speed="64.0 GT/s PCIe" link_width="2">
      <gpu dev="0" sm="107"><c2c bw="56376" count="7"/></gpu>
      <gpu dev="0" sm="107"/>
    </pci></cpu></system>)");
  CHECK(first.gpus().size() == 2);
  CHECK(links_of(first)[{"gpu0.2", "cpu0"}] == doctest::Approx(15.125));
  const auto xml = write_nccl_topology(first);
  REQUIRE(xml.ok());
  const Topology second = read(*xml);
  CHECK(second.links().size() == first.links().size());
  double c2c = 0;
  for (const Link& link : second.links())
    if (link.kind == LinkKind::c2c) c2c = link.bandwidth;
  CHECK(c2c == doctest::Approx(56.376 * 7));
}

TEST_CASE("GPUs keep the dev that a file has for them, others have their number in their node") {
  const Topology some = read(replaced(replaced(small, "dev=\"2\"", "dev=\"7\""), "dev=\"0\"", "dev=\"3\""));
  CHECK(nccl_devices(some) == std::vector{1, 3, 7});
  CHECK(nccl_devices(read(*write_nccl_topology(some))) == std::vector{1, 3, 7});
  CHECK(nccl_devices(*preset("rx3", 2)) == std::vector{0, 1, 0, 1});
}

TEST_CASE("GPUs that are not below a CPU cannot be written") {
  Topology topology;
  topology.add(VertexKind::gpu, "gpu0");
  CHECK(write_nccl_topology(topology).status().message() ==
        "NCCL's topology XML has no place for gpu0, which is not below a CPU");
}

TEST_CASE("rings are written as channels of one speed") {
  RingPacking packing;
  packing.rings = {{{0, 1, 2}, units(50)}, {{0, 2, 1}, units(25)}};
  packing.rate = units(75);
  CHECK(write_nccl_rings(packing, {4, 5, 6}, "NVL") == R"(<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="3" speedintra="25" speedinter="25" latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="0">
    <channel>
      <gpu dev="4" />
      <gpu dev="5" />
      <gpu dev="6" />
    </channel>
    <channel>
      <gpu dev="4" />
      <gpu dev="5" />
      <gpu dev="6" />
    </channel>
    <channel>
      <gpu dev="4" />
      <gpu dev="6" />
      <gpu dev="5" />
    </channel>
  </graph>
</graphs>
)");
}

}  // namespace paceline
