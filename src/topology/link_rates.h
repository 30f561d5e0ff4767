// Rates of links after line coding, each way, by what the hardware says of itself. Sources: presets.cc.
#pragma once

#include <span>
#include <string_view>

namespace paceline {

// Estimates, in us: of a link of each kind.
inline constexpr double nvlink_latency = 0.5;
inline constexpr double pcie_latency = 0.15;
inline constexpr double socket_latency = 0.1;
inline constexpr double network_latency = 0.5;

// GB/s of one NVLink of a GPU; that of the newest known for one that is newer still.
double nvlink_rate(int compute_capability);

struct PcieGeneration {
  double transfers = 0;  // GT/s
  double lane = 0;       // GB/s
};
std::span<const PcieGeneration> pcie_generations();

struct CpuModel {
  std::string_view vendor;  // as CPUID and NCCL's XML have it
  int family = 0;
  int model = 0;       // from this one on
  double between = 0;  // GB/s between two sockets
};
// Of each vendor the oldest first.
std::span<const CpuModel> cpu_models();
// The newest known that is not newer; the first of all for an unknown vendor.
const CpuModel& cpu_model(std::string_view vendor, int family, int model);

}  // namespace paceline
