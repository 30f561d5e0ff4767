// The topology of this machine, from what Linux and NVIDIA's driver say of it.
//
//   /sys/devices/system/node/node*       NUMA nodes with CPUs: a CPU vertex each
//   /proc/cpuinfo                        their model, which tells the bandwidth between sockets
//   /sys/bus/pci/devices/*               the PCI tree: what is below what, link speeds and widths, NUMA nodes
//   /sys/class/infiniband, /sys/class/net   NICs and their rates
//   NVML                                 GPUs that this process may see, their NVLinks
//
// It is written down as NCCL's topology XML first (nccl_xml.h), the same for both, and read from there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/nvml.h"

namespace paceline {

// This machine. It may have no GPU: then no search works on it, but its CPUs and NICs are there.
Result<Topology> detect_topology();

// A machine as NCCL's topology XML, its file system below `root`. `gpus`: what NVML knows; nothing: the GPUs are the
// NVIDIA and AMD display and compute devices of the PCI tree. What cannot be read is left out.
std::string describe_machine(const std::filesystem::path& root, const std::optional<std::vector<NvmlGpu>>& gpus);

// Which machine it is: CPU model, NUMA nodes, and the GPUs and NICs of the PCI tree, a line each, whatever state links
// are in and whichever network interfaces this process sees.
std::string describe_parts(const std::filesystem::path& root);

}  // namespace paceline
