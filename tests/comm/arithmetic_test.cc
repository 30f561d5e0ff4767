#include <doctest/doctest.h>
#include <immintrin.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "comm/threads.h"

namespace paceline::testing {
namespace {

using Floats = std::array<float, 64>;

constexpr unsigned as_started = 0x1F80;  // all exceptions masked
constexpr unsigned flushing = as_started | 0x8000 | 0x0040, rounding_up = as_started | 0x4000;
constexpr unsigned trapping = as_started & ~0x0100U;  // where an operand is subnormal

// What the thread's program has set while this lives.
class ThreadArithmetic {
 public:
  explicit ThreadArithmetic(unsigned now) : before_(_mm_getcsr()) { _mm_setcsr(now); }
  ~ThreadArithmetic() { _mm_setcsr(before_); }
  ThreadArithmetic(const ThreadArithmetic&) = delete;
  ThreadArithmetic& operator=(const ThreadArithmetic&) = delete;

 private:
  unsigned before_;
};

// By their bits: a thread that takes subnormal numbers for zero compares them so.
std::string expect_bits(const Floats& floats, std::uint32_t wanted) {
  for (const float& one : floats) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &one, sizeof bits);
    if (bits != wanted) return std::to_string(bits) + " instead of " + std::to_string(wanted);
  }
  return "";
}

Floats filled(std::uint32_t bits) {
  Floats floats;
  for (float& one : floats) std::memcpy(&one, &bits, sizeof bits);
  return floats;
}

}  // namespace

TEST_CASE("results do not depend on how a rank's thread computes otherwise") {
  constexpr std::uint32_t subnormal = 1000;
  constexpr std::uint32_t one = 0x3F800000, tiny = 0x30800000;  // 1 and 2^-30
  for (const unsigned odd : {flushing, rounding_up, trapping}) {
    INFO("with ", odd);
    paceConfig_t config = PACE_CONFIG_INITIALIZER;
    config.timeoutSeconds = 10;
    const Ranks two(2, config);
    two.run([&](int rank, paceComm_t comm) -> std::string {
      const unsigned mine = rank == 0 ? odd : as_started;
      const ThreadArithmetic arithmetic(mine);
      for (const char* algorithm : {"recursive_doubling", "one_shot", "ring"}) {
        PACE_EXPECT(paceCommSetAlgorithm(comm, algorithm));
        for (const bool grouped : {false, true}) {
          Floats small = filled(subnormal);
          Floats uneven = filled(rank == 0 ? one : tiny);
          for (Floats* each : {&small, &uneven}) {
            if (grouped) PACE_EXPECT(paceGroupStart());
            PACE_EXPECT(paceAllReduce(each->data(), each->data(), each->size(), paceFloat32, paceSum, comm, nullptr));
            if (grouped) PACE_EXPECT(paceGroupEnd());
          }
          PACE_REQUIRE(expect_bits(small, 2 * subnormal) == "");
          PACE_REQUIRE(expect_bits(uneven, one) == "");
        }
        Floats averaged = filled(subnormal);
        PACE_EXPECT(
            paceAllReduce(averaged.data(), averaged.data(), averaged.size(), paceFloat32, paceAvg, comm, nullptr));
        PACE_REQUIRE(expect_bits(averaged, subnormal) == "");
      }
      PACE_REQUIRE((_mm_getcsr() & ~0x3FU) == mine);  // it is the program's again
      return "";
    });
  }
}

}  // namespace paceline::testing
