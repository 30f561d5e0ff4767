// Whatever is read as a profile is an error or one that can be used.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tuning/choice.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto profile = read_profile({reinterpret_cast<const char*>(data), size});
  if (!profile.ok()) return 0;
  for (const Setting& setting : profile->settings)
    if (!read_setting(write_setting(setting)).ok()) std::abort();
  for (const int ranks : {2, 3, 16}) {
    const auto tuned = Tuned::of(*profile, "shm", ranks);
    if (tuned == nullptr) continue;
    const CostModel model = tuned->model(CostModel());
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 24}) {
      const auto choice = choose({Collective::all_reduce, ranks, 0, count, false}, model, "", 0, tuned.get());
      if (!choice.ok() || !(choice->predicted_us >= 0)) std::abort();
    }
  }
  return 0;
}
