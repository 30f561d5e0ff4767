// An error as ranks show it to each other without a message, while they connect or when they end: bytes of a fixed
// size.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace paceline {

struct Trouble {
  Code code = Code::ok;
  std::int32_t from = -1;  // who shows it
  std::int32_t rank = -1;  // whom it is about, which may be another
  std::int32_t peer = -1;
  std::int32_t system_errno = 0;
  std::uint64_t sequence = 0;
  std::array<char, 64> host{};
  std::array<char, 24> collective{};
  std::array<char, 384> message{};

  // `status` as rank `from` on `host` shows it; about that rank unless it says otherwise.
  static Trouble of(const Status& status, int from, std::string_view host);
  [[nodiscard]] Status status() const;
  // The same as `from` says it: "rank 3: ...", unless it begins with that rank's name.
  [[nodiscard]] Status quoted() const;
};

// The first error that is about the rank that shows it: what others say of their peers may only follow from it. Else
// the first of all. Quoted.
Status root_cause(const std::vector<Trouble>& troubles);

}  // namespace paceline
