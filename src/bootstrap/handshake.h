// The handshake that opens every connection: both sides prove that they know the job's secret, and the connecting side
// says who it is and what the connection is for. Before both proofs, nothing but messages of fixed size is read.
//
//   connecting side                              accepting side
//   magic, version, nonce c               ->
//                                         <-     magic, version, nonce a
//   hello, HMAC(secret, 'c' c a hello)    ->
//                                         <-     verdict, HMAC(secret, 'a' c a hello)
//
// The HMACs (SHA-256) cover both nonces, the side that speaks and the hello, so that none can be replayed, reflected or
// moved to another connection. The connection itself is not encrypted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "bootstrap/socket.h"

namespace paceline {

// Who connects and what for.
struct Hello {
  std::uint32_t kind = 0;     // which of Paceline's connections this is; values below
  std::uint32_t rank = 0;     // of the connecting side
  std::uint32_t channel = 0;  // for transports that open several
  std::uint64_t group = 0;    // for connections that belong to one communicator: its id

  bool operator==(const Hello&) const = default;
};
inline constexpr std::uint32_t control_connection = 1;
inline constexpr std::uint32_t data_connection = 2;
inline constexpr std::uint32_t probe_connection = 3;   // only to see who is there; closed at once
inline constexpr std::uint32_t rank_0_connection = 4;  // from rank 0 to where its unique id was made

inline constexpr std::uint32_t handshake_version = 5;

// Longest that who has connected may stay unknown, and the same when there is no room for others.
inline constexpr auto introduction_time = std::chrono::seconds(3);
inline constexpr auto crowded_time = std::chrono::milliseconds(250);

// The socket of either side stays the caller's, also after an error; the only sensible use is then to close it. Errors:
//   Code::unsupported       the other side speaks another version (remedy named)
//   Code::invalid_usage     the secret does not match; not a Paceline connection
//   Code::remote            the other side closed the connection
//   Code::timeout           the deadline passed (connecting side)
//   Code::aborted           the wait was given up (connecting side)

// The connecting side: on blocking and non-blocking sockets, until the deadline.
Status introduce(int fd, const std::string& secret, const Hello& hello, const Until& until);

// What introduce() says and what it makes of the answers, which anybody may send; without the socket, for tests.
class Introducer {
 public:
  // `fd` is only named in errors, and must outlive this.
  Introducer(int fd, std::string secret, const Hello& hello);

  // First of all.
  Status begin();
  // To be sent before more is received.
  [[nodiscard]] std::span<const std::byte> unsent() const;
  // How long this stage's answer is; 0: all have come, and the other side has proved what it is.
  [[nodiscard]] std::size_t expected() const;
  // The bytes of it that have arrived so far, at most expected().
  Status receive(std::span<const std::byte> bytes);

 private:
  enum class Stage { opening, answer, done };
  using Nonce = std::array<std::byte, 32>;

  int fd_;
  std::string secret_;
  Hello hello_;
  Stage stage_ = Stage::opening;
  Nonce connecting_{};
  Nonce accepting_{};
  std::array<std::byte, 64> output_{};
  std::size_t output_size_ = 0;
};

// The accepting side: never blocks, for it serves many connections at a time (strangers.h), and has no deadline.
class Introduction {
 public:
  // `fd` must outlive this.
  Introduction(int fd, std::string secret);

  // Goes on as far as it can without waiting: call when poll() reports one of events(). After an error drop the
  // connection.
  Status advance();
  [[nodiscard]] bool done() const { return stage_ == Stage::done; }
  // Whether the other side has shown to be Paceline, if perhaps of another version or job.
  [[nodiscard]] bool opened() const { return output_size_ > 0; }
  [[nodiscard]] short events() const;  // what to poll for
  // Who connects; once done().
  [[nodiscard]] const Hello& hello() const { return hello_; }

  // One step without the socket, for tests: the bytes of this stage that have arrived so far, at most expected().
  Status receive(std::span<const std::byte> bytes);
  [[nodiscard]] std::size_t expected() const;
  [[nodiscard]] std::span<const std::byte> unsent() const;

 private:
  enum class Stage { opening, proof, answering, done };
  using Nonce = std::array<std::byte, 32>;

  Status check_opening(std::span<const std::byte> bytes);
  Status check_proof(std::span<const std::byte> bytes);
  Status flush();

  int fd_;
  std::string secret_;
  Stage stage_ = Stage::opening;
  Nonce connecting_{};
  Nonce accepting_{};
  Hello hello_;
  std::array<std::byte, 64> input_{};
  std::size_t input_size_ = 0;
  std::array<std::byte, 128> output_{};
  std::size_t output_size_ = 0;
  std::size_t output_sent_ = 0;
  Status refusal_;  // the error to return once the answer that says so has been sent
};

}  // namespace paceline
