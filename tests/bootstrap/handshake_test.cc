#include "bootstrap/handshake.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <thread>

#include "bootstrap/ranks.h"
#include "bootstrap/receive_introduction.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

struct Pair {
  PrivateDescriptor connecting, accepting;
  Pair() {
    const FileDescriptor listener = std::move(*listen_at("127.0.0.1", 0));
    connecting = std::move(*connect_to("127.0.0.1", port_of(local_address(listener.get())), in(5s)));
    REQUIRE(wait_for(listener.get(), POLLIN, in(5s)).ok());
    accepting = std::move(*accept_from(listener.get()));
  }
};

constexpr std::size_t opening_size = 44;

}  // namespace

TEST_CASE("the accepting side learns who connects and what for") {
  const Pair pair;
  const Hello hello{data_connection, 7, 3, 0x1122334455667788};
  Status introduced(Code::internal, "not run");
  std::thread other([&] { introduced = introduce(pair.connecting.get(), "secret", hello, in(5s)); });
  const Result<Hello> received = receive_introduction(pair.accepting.get(), "secret", in(5s));
  other.join();
  CHECK(introduced.ok());
  REQUIRE(received.ok());
  CHECK(*received == hello);
}

TEST_CASE("the two sides understand each other whatever pieces their bytes come in") {
  const Hello hello{control_connection, 2, 0, 5};
  Introducer connecting(-1, "secret", hello);
  Introduction accepting(-1, "secret");
  // All of a stage's bytes, one more with each step.
  const auto give = [](std::span<const std::byte> bytes, auto& to) {
    REQUIRE(bytes.size() == to.expected());
    for (std::size_t come = 1; come <= bytes.size(); ++come) REQUIRE(to.receive(bytes.first(come)).ok());
  };
  REQUIRE(connecting.begin().ok());
  give(connecting.unsent(), accepting);
  give(accepting.unsent(), connecting);
  give(connecting.unsent(), accepting);
  give(accepting.unsent().subspan(opening_size), connecting);
  CHECK(connecting.expected() == 0);
  CHECK(accepting.hello() == hello);
}

TEST_CASE("another secret is refused on both sides") {
  const Pair pair;
  Status introduced;
  std::thread other([&] { introduced = introduce(pair.connecting.get(), "secret", {}, in(5s)); });
  const Result<Hello> received = receive_introduction(pair.accepting.get(), "Secret", in(5s));
  other.join();
  CHECK(introduced.code() == Code::invalid_usage);
  CHECK(introduced.message().find("the secret does not match") != std::string::npos);
  CHECK(received.status().code() == Code::invalid_usage);
  CHECK(received.status().message().find("the secret does not match") != std::string::npos);
}

TEST_CASE("an accepting side that does not know the secret is found out") {
  const Pair pair;
  // It says "accepted" without being able to prove it.
  std::thread impostor([&] {
    std::array<std::byte, 256> bytes{};
    (void)receive_some(pair.accepting.get(), bytes, in(5s));
    (void)send_all(pair.accepting.get(), std::span(bytes).first(opening_size), in(5s));
    (void)receive_some(pair.accepting.get(), bytes, in(5s));
    bytes.fill(std::byte{0});
    (void)send_all(pair.accepting.get(), std::span(bytes).first(36), in(5s));
  });
  const Status introduced = introduce(pair.connecting.get(), "secret", {}, in(5s));
  impostor.join();
  CHECK(introduced.message().find("the secret does not match") != std::string::npos);
}

TEST_CASE("another version is named on both sides, with the remedy") {
  const Pair pair;
  Result<Hello> received = Status(Code::internal, "not run");
  std::thread other([&] { received = receive_introduction(pair.accepting.get(), "secret", in(5s)); });
  std::array<std::byte, opening_size> opening{};
  std::memcpy(opening.data(), "PACELINE\x06", 9);
  CHECK(send_all(pair.connecting.get(), opening, in(5s)).ok());
  // What such a version 6 would learn: ours.
  std::array<std::byte, opening_size> answer{};
  CHECK(*receive_some(pair.connecting.get(), answer, in(5s)) == opening_size);
  CHECK(std::memcmp(answer.data(), "PACELINE\x05\0\0\0", 12) == 0);
  other.join();
  CHECK(received.status().code() == Code::unsupported);
  CHECK(received.status().message().find(
            "speaks version 6, this is version 5: install the same Paceline on all nodes") != std::string::npos);
}

TEST_CASE("the connecting side names another version too") {
  const Pair pair;
  std::array<std::byte, opening_size> opening{};
  std::memcpy(opening.data(), "PACELINE\x06", 9);
  CHECK(send_all(pair.accepting.get(), opening, in(5s)).ok());
  const Status introduced = introduce(pair.connecting.get(), "secret", {}, in(5s));
  CHECK(introduced.code() == Code::unsupported);
  CHECK(introduced.message().find("speaks version 6, this is version 5") != std::string::npos);
}

TEST_CASE("junk is known from its first byte, and answered with nothing") {
  const Pair pair;
  CHECK(send_all(pair.connecting.get(), std::as_bytes(std::span("G", 1)), in(5s)).ok());
  const Result<Hello> received = receive_introduction(pair.accepting.get(), "secret", in(5s));
  CHECK(received.status().code() == Code::invalid_usage);
  CHECK(received.status().message().find("is not a Paceline connection") != std::string::npos);
  std::array<std::byte, 1> byte{};
  CHECK(::recv(pair.connecting.get(), byte.data(), 1, MSG_DONTWAIT) == -1);
}

TEST_CASE("half a hello ends at the deadline") {
  const Pair pair;
  CHECK(send_all(pair.connecting.get(), std::as_bytes(std::span("PACE", 4)), in(5s)).ok());
  CHECK(receive_introduction(pair.accepting.get(), "secret", in(20ms)).status().code() == Code::timeout);
}

TEST_CASE("an end in the middle is the other side's") {
  Pair pair;
  CHECK(send_all(pair.connecting.get(), std::as_bytes(std::span("PACE", 4)), in(5s)).ok());
  pair.connecting.reset();
  CHECK(receive_introduction(pair.accepting.get(), "secret", in(5s)).status().code() == Code::remote);
}

TEST_CASE("a proof is worth nothing on another connection") {
  // Record the connecting side's bytes of a good handshake, then send them again.
  std::array<std::byte, 96> recorded{};
  {
    const Pair pair;
    Introduction introduction(pair.accepting.get(), "secret");
    std::thread other([&] { (void)introduce(pair.connecting.get(), "secret", {}, in(5s)); });
    std::size_t filled = 0;
    while (filled < recorded.size()) {
      std::array<std::byte, 96> piece{};
      const std::size_t got =
          *receive_some(pair.accepting.get(), std::span(piece).first(introduction.expected()), in(5s));
      REQUIRE(introduction.receive(std::span(piece).first(got)).ok());
      std::copy_n(piece.begin(), got, recorded.begin() + static_cast<std::ptrdiff_t>(filled));
      filled += got;
      REQUIRE(send_all(pair.accepting.get(), introduction.unsent(), in(5s)).ok());
      if (filled < recorded.size()) continue;
    }
    other.join();
  }
  const Pair pair;
  CHECK(send_all(pair.connecting.get(), recorded, in(5s)).ok());
  CHECK(receive_introduction(pair.accepting.get(), "secret", in(5s))
            .status()
            .message()
            .find("the secret does not match") != std::string::npos);
}
