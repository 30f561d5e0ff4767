#include "topology/link_rates.h"

namespace paceline {
namespace {

constexpr PcieGeneration generations[] = {
    {2.5, 2.5 * 8 / 10 / 8},    {5, 5.0 * 8 / 10 / 8},      {8, 8.0 * 128 / 130 / 8},
    {16, 16.0 * 128 / 130 / 8}, {32, 32.0 * 128 / 130 / 8}, {64, 64.0 * 242 / 256 / 8},
};

constexpr CpuModel models[] = {
    {"GenuineIntel", 6, 0, 2 * 19.2},    // QPI
    {"GenuineIntel", 6, 85, 3 * 20.8},   // Skylake, Cascade Lake: UPI
    {"GenuineIntel", 6, 106, 3 * 22.4},  // Ice Lake
    {"GenuineIntel", 6, 143, 4 * 48.0},  // Sapphire Rapids: UPI 2
    {"GenuineIntel", 6, 207, 4 * 60.0},  // Emerald Rapids
    {"AuthenticAMD", 0, 0, 4 * 32.0},    // Rome, Milan: xGMI-2
};

}  // namespace

double nvlink_rate(int compute_capability) {
  if (compute_capability >= 100) return 50;
  if (compute_capability == 86) return 14.0625;
  return compute_capability > 0 && compute_capability < 70 ? 20 : 25;
}

std::span<const PcieGeneration> pcie_generations() { return generations; }

std::span<const CpuModel> cpu_models() { return models; }

const CpuModel& cpu_model(std::string_view vendor, int family, int model) {
  const CpuModel* found = &models[0];
  for (const CpuModel& row : models)
    if (row.vendor == vendor && (family > row.family || (family == row.family && model >= row.model))) found = &row;
  return *found;
}

}  // namespace paceline
