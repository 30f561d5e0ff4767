#include "bootstrap/control_message.h"

#include <doctest/doctest.h>

using namespace paceline;

namespace {

std::span<const std::byte> body_of(const Bytes& frame) { return std::span(frame).subspan(4); }

template <class Message>
Message round_trip(const Message& message) {
  const Result<ControlMessage> decoded = decode(body_of(encode(message)));
  REQUIRE(decoded.ok());
  return std::get<Message>(*decoded);
}

const Status::Detail reason{Code::timeout, "rank 3 left", 3, "node-b", 1, "all-reduce", 812, 104};

std::vector<ControlMessage> one_of_each() {
  const Member member{"node-a", "boot ipc", "10.0.0.1", 4321};
  return {Join{4, member},
          Arrival{2, member},
          Refusal{reason},
          Contribution{1, 2, Bytes(5, std::byte{9})},
          Shortfall{1, reason},
          Verdict{77, reason},
          Death{1, "died"},
          Suspicion{77, {0, 5, 2}, 0, 1, {812, 3, 1024}, 5.5},
          Ping{1, 77},
          Pong{1, Pong::State::left, 811},
          Left{77, 1, 811, 3},
          Farewell{3},
          GatheringPlace{"10.0.0.7", 29500}};
}

}  // namespace

TEST_CASE("every kind of message comes back with the same bytes") {
  CHECK(one_of_each().size() == std::variant_size_v<ControlMessage>);
  for (const ControlMessage& message : one_of_each()) {
    const Bytes frame = encode(message);
    const Result<ControlMessage> decoded = decode(body_of(frame));
    REQUIRE(decoded.ok());
    CHECK(decoded->index() == message.index());
    CHECK(encode(*decoded) == frame);
  }
}

TEST_CASE("fields come back") {
  const Suspicion suspicion = round_trip(Suspicion{77, {0, 5, 2}, 0, 1, {812, 3, 1024}, 5.5});
  CHECK(suspicion.ranks == std::vector<std::uint32_t>{0, 5, 2});
  CHECK(suspicion.call == Call{812, 3, 1024});
  CHECK(suspicion.seconds == 5.5);
  const Status::Detail detail = round_trip(Verdict{77, reason}).reason;
  CHECK(detail.code == Code::timeout);
  CHECK(detail.message == "rank 3 left");
  CHECK(detail.rank == 3);
  CHECK(detail.host == "node-b");
  CHECK(detail.peer == 1);
  CHECK(detail.collective == "all-reduce");
  CHECK(detail.sequence == 812);
  CHECK(detail.system_errno == 104);
  CHECK(round_trip(Join{4, {"h", "n", "", -1}}).member.pid == -1);
}

TEST_CASE("a message cut anywhere, or with bytes left over, is refused") {
  for (const ControlMessage& message : one_of_each()) {
    Bytes frame = encode(message);
    for (std::size_t length = 0; length < frame.size() - 4; ++length)
      CHECK(decode(body_of(frame).first(length)).status().code() == Code::remote);
    frame.push_back(std::byte{0});
    CHECK(decode(body_of(frame)).status().code() == Code::remote);
  }
}

TEST_CASE("kinds, codes and states that do not exist are refused") {
  const std::byte kind[] = {std::byte{99}};
  CHECK(decode(kind).status().message() == "a control message of the unknown kind 99");
  Bytes verdict = encode(Verdict{77, reason});
  verdict[4 + 1 + 8] = std::byte{200};
  CHECK_FALSE(decode(body_of(verdict)).ok());
  verdict[4 + 1 + 8] = std::byte{0};  // "ok" is no reason
  CHECK_FALSE(decode(body_of(verdict)).ok());
  Bytes pong = encode(Pong{1, Pong::State::left, 811});
  pong[4 + 1 + 8] = std::byte{6};
  CHECK_FALSE(decode(body_of(pong)).ok());
}

TEST_CASE("a list longer than its message is refused, without memory for it") {
  Bytes frame = encode(Suspicion{77, {0, 5, 2}, 0, 1, {}, 0});
  for (int i = 0; i < 4; ++i) frame[4 + 1 + 8 + static_cast<std::size_t>(i)] = std::byte{0xff};
  CHECK_FALSE(decode(body_of(frame)).ok());
}

TEST_CASE("a stream is cut into its messages, however it arrives") {
  Bytes stream;
  for (const ControlMessage& message : one_of_each()) {
    const Bytes frame = encode(message);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{50}, stream.size()}) {
    FrameReader reader;
    std::vector<std::size_t> kinds;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      for (;;) {
        const auto message = reader.next();
        REQUIRE(message.ok());
        if (!message->has_value()) break;
        kinds.push_back((*message)->index());
      }
    }
    CHECK(kinds == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  }
}

TEST_CASE("a frame larger than any message is refused before it has come") {
  FrameReader reader;
  const Bytes header = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0x7f}};
  reader.append(header);
  CHECK(reader.next().status().code() == Code::remote);
}
