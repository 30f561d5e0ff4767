// SHA-256 and HMAC-SHA256 (FIPS 180-4, RFC 2104) by OpenSSL, usable in a child that was forked at any moment: OpenSSL
// takes locks of its own on the way, which a child would find taken for ever if another thread held one.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace paceline {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::string_view text);
Digest hmac_sha256(std::string_view secret, std::span<const std::byte> text);

}  // namespace paceline
