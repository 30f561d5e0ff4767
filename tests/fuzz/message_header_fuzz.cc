// Any 32 bytes are either refused or mean exactly what they say: encoding what was decoded gives the same bytes.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "transport/message_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  if (size < message_header_bytes) return 0;
  EncodedHeader bytes;
  std::memcpy(bytes.data(), data, bytes.size());
  auto header = decode(bytes);
  if (!header.ok()) return header.status().message().empty() ? std::abort(), 0 : 0;
  if (header->length > largest_message_bytes || encode(*header) != bytes) std::abort();
  if (describe(header->call).empty()) std::abort();
  return 0;
}
