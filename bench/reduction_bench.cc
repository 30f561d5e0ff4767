// Speed of the folds: GB/s of the target (10^9 bytes; every source adds as much reading), best of several batches.
// Usage: reduction_bench [bytes of the target]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/reduction.h"

using namespace paceline;

namespace {

// Nanoseconds of one call.
double time_call(DataType type, Operation op, std::size_t sources, std::size_t bytes, std::size_t offset) {
  const std::size_t stride = (bytes + 64 + 4095) / 4096 * 4096 + 128;  // not whole pages: rows share no cache set
  std::vector<std::byte> memory((sources + 1) * stride + 64);
  std::byte* target = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 + offset;
  std::vector<const std::byte*> rows;
  for (std::size_t s = 1; s <= sources; ++s) rows.push_back(target + s * stride);
  const FoldFunction fold = fold_function(type, op);
  const std::size_t elements = bytes / size_of(type);
  const int calls = static_cast<int>(std::max<std::size_t>(1, 500'000 / (bytes * sources + 400)));
  double best = 1e30;
  for (int batch = 0; batch < 40; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) fold(target, rows.data(), rows.size(), elements);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / calls);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 65536;
  std::printf("%s, %zu bytes\n%-12s %-5s %12s %12s %12s %14s\n", instruction_set(), bytes, "type", "op", "2 sources",
              "8 sources", "2, odd by 4", "8 elements, ns");
  for (int type = 0; type < data_type_count; ++type)
    for (const Operation op : {Operation::sum, Operation::prod, Operation::max}) {
      const auto t = static_cast<DataType>(type);
      const auto speed = [&](std::size_t sources, std::size_t offset) {
        return static_cast<double>(bytes) / time_call(t, op, sources, bytes, offset);
      };
      std::printf("%-12s %-5s %12.1f %12.1f %12.1f %14.1f\n", name(t).data(), name(op).data(), speed(2, 0), speed(8, 0),
                  speed(2, 4), time_call(t, op, 2, 8 * size_of(t), 0));
    }
}
