// The connecting side of the handshake, on whatever bytes a listener sends: it must never end well, for they do not
// know the secret.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bootstrap/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string secret = "a secret";
  paceline::Introducer introducer(-1, secret, {paceline::data_connection, 3, 1, 77});
  if (!introducer.begin().ok()) return 0;
  auto rest = std::as_bytes(std::span(data, size));
  while (!rest.empty() && introducer.expected() > 0) {
    const auto piece = rest.first(std::min(rest.size(), introducer.expected()));
    if (!introducer.receive(piece).ok()) break;
    rest = rest.subspan(piece.size());
  }
  if (introducer.expected() == 0) std::abort();
  return 0;
}
