// Control messages from whatever bytes come: what can be read must be written back as the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bootstrap/control_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto bytes = std::as_bytes(std::span(data, size));

  const Result<ControlMessage> message = decode(bytes);
  if (message.ok()) {
    const Bytes frame = encode(*message);
    if (!std::equal(bytes.begin(), bytes.end(), frame.begin() + 4, frame.end())) std::abort();
  }

  FrameReader reader;
  const std::size_t half = size / 2;
  for (const auto piece : {bytes.first(half), bytes.subspan(half)}) {
    reader.append(piece);
    for (;;) {
      const auto next = reader.next();
      if (!next.ok()) return 0;
      if (!next->has_value()) break;
    }
  }
  return 0;
}
