// The accepting side of the handshake, on whatever bytes come: it must never end well, for they do not know the secret.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bootstrap/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string secret = "a secret";
  paceline::Introduction introduction(-1, secret);
  auto rest = std::as_bytes(std::span(data, size));
  while (!rest.empty() && introduction.expected() > 0) {
    const auto piece = rest.first(std::min(rest.size(), introduction.expected()));
    if (!introduction.receive(piece).ok()) break;
    rest = rest.subspan(piece.size());
  }
  if (introduction.done() || introduction.hello() != paceline::Hello{}) std::abort();
  return 0;
}
