#include "transport/message_header.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace paceline {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Layout {
  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  std::uint8_t kind = 0;
  std::uint16_t zero = 0;
  std::uint64_t length = 0;
  Call call;
};
static_assert(sizeof(Layout) == message_header_bytes);

constexpr std::uint32_t magic = 0x4e4c4350;  // "PCLN"
constexpr std::uint8_t version = 1;

Status malformed(std::string what) { return {Code::internal, "malformed message header: " + std::move(what)}; }

}  // namespace

EncodedHeader encode(const MessageHeader& header) {
  const Layout layout{magic, version, static_cast<std::uint8_t>(header.kind), 0, header.length, header.call};
  return std::bit_cast<EncodedHeader>(layout);
}

Result<MessageHeader> decode(std::span<const std::byte, message_header_bytes> bytes) {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != magic) return malformed(fmt::format("it begins with {:#010x}", layout.magic));
  if (layout.version != version) return malformed(fmt::format("version {}, not {}", layout.version, version));
  if (layout.zero != 0) return malformed("bytes that must be zero are not");
  const auto kind = static_cast<MessageKind>(layout.kind);
  if (kind != MessageKind::message && kind != MessageKind::inquiry)
    return malformed(fmt::format("unknown kind {}", layout.kind));
  if (layout.length > (kind == MessageKind::message ? largest_message_bytes : 0))
    return malformed(fmt::format("a length of {} bytes", layout.length));
  return MessageHeader{kind, layout.length, layout.call};
}

}  // namespace paceline
