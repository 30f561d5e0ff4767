// The 32 bytes in front of everything that a TCP connection carries after its handshake.
//
//   0  magic "PCLN"    4  version   5  kind   6  zero (2 bytes)   8  length, bytes   16  call (16 bytes)
//
// Little-endian, as on every machine that Paceline runs on. A message is followed by `length` bytes of data. An inquiry
// is a header alone: the sender has been waiting long, inside this call, or has ended it without a message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/call.h"
#include "base/status.h"

namespace paceline {

enum class MessageKind : std::uint8_t { message = 1, inquiry = 2 };

struct MessageHeader {
  MessageKind kind = MessageKind::message;
  std::uint64_t length = 0;  // bytes of data that follow
  Call call;
};

inline constexpr std::size_t message_header_bytes = 32;
inline constexpr std::size_t largest_message_bytes = std::size_t{1} << 30;

using EncodedHeader = std::array<std::byte, message_header_bytes>;

EncodedHeader encode(const MessageHeader& header);
// The header that these bytes are, or what is wrong with them. Any bytes may come in.
Result<MessageHeader> decode(std::span<const std::byte, message_header_bytes> bytes);

}  // namespace paceline
