// Whatever is read as a profile is an error or one that can be used.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "cuda/calls/exchange.h"
#include "tuning/choice.h"

namespace {

// No table makes a launch that no GPU takes.
void exchange_by(const paceline::GpuTable& table, int machine_ranks) {
  using namespace paceline;
  const int ranks = std::clamp(machine_ranks, 1, cuda::max_gpus);
  alignas(16) static std::byte memory[16];
  for (int number = 0; number < collective_count; ++number)
    for (const std::size_t count : {std::size_t{1}, std::size_t{100000}, std::size_t{1} << 31}) {
      Request request;
      request.which = static_cast<Collective>(number);
      request.send = request.recv = memory;
      request.count = count;
      cuda::Exchanges exchanges;
      cuda::plan_collective(request, 0, ranks, table.way(request.which, count), memory, exchanges);
      for (int i = 0; i < exchanges.count; ++i) {
        const cuda::Launch& launch = exchanges.launches[static_cast<std::size_t>(i)];
        if (launch.blocks < 1 || launch.blocks > cuda::strip_blocks || launch.threads > 1024) std::abort();
      }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto profile = read_profile({reinterpret_cast<const char*>(data), size});
  if (!profile.ok()) return 0;
  for (const Setting& setting : profile->settings)
    if (!read_setting(write_setting(setting)).ok()) std::abort();
  for (const GpuSetting& setting : profile->gpus) {
    if (!read_gpu_settings(nlohmann::json::array({write_gpu_setting(setting)})).ok()) std::abort();
    const GpuTable table = choose_gpu_table(profile->gpus, {}, setting.machine).table;
    exchange_by(table, setting.machine.ranks);
  }
  for (const int ranks : {2, 3, 16}) {
    const auto tuned = Tuned::of(*profile, "shm", ranks);
    if (tuned == nullptr) continue;
    const CostModel model = tuned->model(CostModel());
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 24}) {
      const auto choice = choose({Collective::all_reduce, ranks, 0, count, false}, model, "", {}, tuned.get());
      if (!choice.ok() || !(choice->predicted_us >= 0)) std::abort();
    }
  }
  return 0;
}
