// NCCL's topology XML: what NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE reads.
//
//   <system version="1">
//     <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
//       <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
//         <pci busid="0000:18:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
//           <gpu dev="0" sm="90"><nvlink target="0000:07:00.0" count="5" tclass="0x068000"/></gpu>
//         </pci>
//         <pci busid="0000:19:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16">
//           <nic><net name="mlx5_0" speed="400000"/></nic>
//
// A pci element is a PCIe switch, a GPU or a NIC by what it contains; its link is the one to the element around it, or
// to the root port that Paceline's own attribute root_port names between the two. A target of class 0x0680.. is an
// NVSwitch. The file holds kinds and counts of links, no rates: these are the rates
// after line coding (presets.cc), by PCIe generation and width, the GPU's compute capability and the CPU's model, where
// NCCL itself reckons with what it has measured. Latencies are estimates but the networks'.
//
// Source: NCCL's user guide (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) and files written by NCCL 2.18 to 2.29.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/graph.h"
#include "topology/rings.h"

namespace paceline {

// GPU i is the i-th by machine (host_hash), then by dev. All NICs are linked with one network switch, "network".
// Elements and attributes that say nothing about the graph are passed over, and so are NVLinks to GPUs that the file
// lacks. Errors (invalid_argument): not well-formed XML (with the byte), another root or version, a number that is
// none, a bus id twice, a root port in two places, elements nested too deep, more elements than machines have, no GPU,
// and what validate() finds.
Result<Topology> read_nccl_topology(std::string_view xml);
// The same, also of a machine without GPU.
Result<Topology> read_nccl_machine(std::string_view xml);

// The whole of a valid topology but the network switches: NCCL's file has one machine, or several that it calls by
// hash. Links get the nearest kind and count. Missing bus ids are made up. Errors (unsupported): a GPU or NIC that is
// not below a CPU.
Result<std::string> write_nccl_topology(const Topology& topology);

// NCCL's dev of each GPU: what a file has said, or the GPU's number in its node.
std::vector<int> nccl_devices(const Topology& topology);

// Rings in one node as NCCL's graph XML (NCCL_GRAPH_FILE): channels of one speed, as many for a ring as its rate needs,
// but one each where that would be more than 32. `devices`: NCCL's dev of each GPU of the rings; `type`: of the hops,
// "NVL", "PIX" or "SYS".
std::string write_nccl_rings(const RingPacking& packing, const std::vector<int>& devices, std::string_view type);

}  // namespace paceline
