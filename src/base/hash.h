// FNV-1a, 64 bits: for what nobody has a reason to forge. Some values travel between ranks and lie in files.
#pragma once

#include <cstdint>
#include <string_view>

namespace paceline {

constexpr std::uint64_t empty_hash = 0xcbf29ce484222325U;

// With one more value, a byte or as wide as it is.
constexpr std::uint64_t add_to_hash(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * 0x100000001b3U; }

// With the bytes of a text.
constexpr std::uint64_t add_to_hash(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = add_to_hash(hash, std::uint64_t{static_cast<unsigned char>(c)});
  return hash;
}

}  // namespace paceline
