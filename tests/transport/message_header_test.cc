#include "transport/message_header.h"

#include <doctest/doctest.h>

#include <string>

namespace paceline {
namespace {

const Call call = make_call(Collective::broadcast, DataType::float64, Operation::sum, 3, 1000, 7);

std::string complaint(const EncodedHeader& bytes) { return decode(bytes).status().message(); }

}  // namespace

TEST_CASE("message header: what is encoded comes back") {
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{largest_message_bytes}}) {
    const auto header = decode(encode({MessageKind::message, length, call}));
    REQUIRE(header.ok());
    CHECK((*header).kind == MessageKind::message);
    CHECK((*header).length == length);
    CHECK((*header).call == call);
  }
  CHECK((*decode(encode({MessageKind::inquiry, 0, call}))).kind == MessageKind::inquiry);
}

TEST_CASE("message header: the layout is what other versions and machines expect") {
  const EncodedHeader bytes = encode({MessageKind::message, 0x0102, Call{0x0a, 0x0b, 0x0c}});
  const std::string text(reinterpret_cast<const char*>(bytes.data()), 8);
  CHECK(text == std::string("PCLN\1\1\0\0", 8));
  CHECK(bytes[8] == std::byte{0x02});
  CHECK(bytes[9] == std::byte{0x01});
  CHECK(bytes[16] == std::byte{0x0a});
  CHECK(bytes[20] == std::byte{0x0b});
  CHECK(bytes[24] == std::byte{0x0c});
}

TEST_CASE("message header: each wrong field is refused by name") {
  const EncodedHeader good = encode({MessageKind::message, 5, call});
  EncodedHeader bytes = good;
  bytes[0] = std::byte{'Q'};
  CHECK(complaint(bytes) == "malformed message header: it begins with 0x4e4c4351");
  bytes = good;
  bytes[4] = std::byte{9};
  CHECK(complaint(bytes) == "malformed message header: version 9, not 1");
  bytes = good;
  bytes[5] = std::byte{0};
  CHECK(complaint(bytes) == "malformed message header: unknown kind 0");
  bytes = good;
  bytes[7] = std::byte{1};
  CHECK(complaint(bytes) == "malformed message header: bytes that must be zero are not");
  bytes = encode({MessageKind::message, largest_message_bytes + 1, call});
  CHECK(complaint(bytes) == "malformed message header: a length of 1073741825 bytes");
  bytes = encode({MessageKind::inquiry, 1, call});
  CHECK(complaint(bytes) == "malformed message header: a length of 1 bytes");
}

}  // namespace paceline
