#include "bootstrap/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/digest.h"
#include "bootstrap/socket.h"

namespace paceline {
namespace {

// On the wire: numbers little-endian.
constexpr std::size_t magic_size = 8, version_size = 4, nonce_size = 32, hello_size = 20, mac_size = sizeof(Digest);
constexpr std::size_t prefix_size = magic_size + version_size;  // the same in every version
constexpr std::size_t opening_size = prefix_size + nonce_size;
constexpr std::size_t proof_size = hello_size + mac_size;
constexpr std::size_t answer_size = 4 + mac_size;
constexpr char magic[] = "PACELINE";

enum Verdict : std::uint32_t { accepted = 0, wrong_secret = 1 };

using Nonce = std::array<std::byte, nonce_size>;

template <class Number>
void put(std::byte* at, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <class Number>
Number get(const std::byte* at) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) value |= static_cast<Number>(at[i]) << (8 * i);
  return value;
}

std::array<std::byte, hello_size> encode(const Hello& hello) {
  std::array<std::byte, hello_size> bytes;
  put(bytes.data(), hello.kind);
  put(bytes.data() + 4, hello.rank);
  put(bytes.data() + 8, hello.channel);
  put(bytes.data() + 12, hello.group);
  return bytes;
}

Hello decode_hello(const std::byte* at) {
  return {get<std::uint32_t>(at), get<std::uint32_t>(at + 4), get<std::uint32_t>(at + 8), get<std::uint64_t>(at + 12)};
}

Status make_nonce(Nonce& nonce) {
  std::size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = ::getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got < 0 && errno != EINTR) return Status::system("getrandom", errno);
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return {};
}

std::array<std::byte, opening_size> opening(const Nonce& nonce) {
  std::array<std::byte, opening_size> bytes;
  std::memcpy(bytes.data(), magic, magic_size);
  put(bytes.data() + magic_size, handshake_version);
  std::copy(nonce.begin(), nonce.end(), bytes.begin() + prefix_size);
  return bytes;
}

// What one side proves. `side` is part of it, so that a side's proof cannot be sent back to it as the other's.
Digest proof(char side, const std::string& secret, const Nonce& connecting, const Nonce& accepting,
             const Hello& hello) {
  std::array<std::byte, 1 + 2 * nonce_size + hello_size> text;
  text[0] = static_cast<std::byte>(side);
  auto end = std::copy(connecting.begin(), connecting.end(), text.begin() + 1);
  end = std::copy(accepting.begin(), accepting.end(), end);
  const auto encoded = encode(hello);
  std::copy(encoded.begin(), encoded.end(), end);
  return hmac_sha256(secret, text);
}

bool equal(const std::byte* a, const Digest& b) { return CRYPTO_memcmp(a, b.data(), b.size()) == 0; }

std::string other_side(int fd) {
  const SocketAddress address = peer_address(fd);
  return address.length > 0 && port_of(address) > 0 ? describe(address) : std::string("the other side");
}

// As early as it can be told, so that nobody waits for more of what is junk.
Status check_prefix(int fd, std::span<const std::byte> received) {
  if (std::memcmp(received.data(), magic, std::min(received.size(), magic_size)) != 0)
    return Status(Code::invalid_usage, fmt::format("{} is not a Paceline connection", other_side(fd)));
  if (received.size() < prefix_size) return {};
  const auto version = get<std::uint32_t>(received.data() + magic_size);
  if (version == handshake_version) return {};
  return Status(Code::unsupported, fmt::format("{} speaks version {}, this is version {}: install the same Paceline on "
                                               "all nodes",
                                               other_side(fd), version, handshake_version));
}

Status secret_error(int fd) {
  return Status(Code::invalid_usage, fmt::format("{}: the secret does not match; give every rank of the job the same "
                                                 "PACELINE_SECRET or PACELINE_SECRET_FILE",
                                                 other_side(fd)));
}

Status during_handshake(int fd, const Status& error) {
  if (error.ok()) return error;
  Status::Detail detail = error.detail();
  detail.message = fmt::format("{} during the handshake: {}", other_side(fd), detail.message);
  return Status(std::move(detail));
}

Status receive_answer(int fd, Introducer& introducer, const Until& until) {
  std::array<std::byte, std::max(opening_size, answer_size)> bytes;
  const std::size_t size = introducer.expected();
  std::size_t filled = 0;
  while (filled < size) {
    const Result<std::size_t> received = receive_some(fd, std::span(bytes).first(size).subspan(filled), until);
    if (!received.ok()) return during_handshake(fd, received.status());
    filled += *received;
    PACE_TRY(introducer.receive(std::span(bytes).first(filled)));
  }
  return {};
}

}  // namespace

Status introduce(int fd, const std::string& secret, const Hello& hello, const Until& until) {
  Introducer introducer(fd, secret, hello);
  PACE_TRY(introducer.begin());
  while (introducer.expected() > 0) {
    PACE_TRY(during_handshake(fd, send_all(fd, introducer.unsent(), until)));
    PACE_TRY(receive_answer(fd, introducer, until));
  }
  return {};
}

Introducer::Introducer(int fd, std::string secret, const Hello& hello)
    : fd_(fd), secret_(std::move(secret)), hello_(hello) {}

Status Introducer::begin() {
  PACE_TRY(make_nonce(connecting_));
  const auto mine = opening(connecting_);
  std::copy(mine.begin(), mine.end(), output_.begin());
  output_size_ = mine.size();
  return {};
}

std::span<const std::byte> Introducer::unsent() const { return std::span(output_).first(output_size_); }

std::size_t Introducer::expected() const {
  return stage_ == Stage::opening ? opening_size : stage_ == Stage::answer ? answer_size : 0;
}

Status Introducer::receive(std::span<const std::byte> bytes) {
  if (stage_ == Stage::opening) PACE_TRY(check_prefix(fd_, bytes));
  if (bytes.size() < expected()) return {};
  if (stage_ == Stage::opening) {
    std::copy(bytes.begin() + prefix_size, bytes.begin() + opening_size, accepting_.begin());
    const auto encoded = encode(hello_);
    const Digest mac = proof('c', secret_, connecting_, accepting_, hello_);
    std::copy(mac.begin(), mac.end(), std::copy(encoded.begin(), encoded.end(), output_.begin()));
    output_size_ = proof_size;
    stage_ = Stage::answer;
    return {};
  }
  if (get<std::uint32_t>(bytes.data()) != accepted ||
      !equal(bytes.data() + 4, proof('a', secret_, connecting_, accepting_, hello_)))
    return secret_error(fd_);
  stage_ = Stage::done;
  return {};
}

Introduction::Introduction(int fd, std::string secret) : fd_(fd), secret_(std::move(secret)) {}

std::size_t Introduction::expected() const {
  return stage_ == Stage::opening ? opening_size : stage_ == Stage::proof ? proof_size : 0;
}

std::span<const std::byte> Introduction::unsent() const {
  return std::span(output_).subspan(output_sent_, output_size_ - output_sent_);
}

short Introduction::events() const { return unsent().empty() ? POLLIN : POLLOUT; }

Status Introduction::receive(std::span<const std::byte> bytes) {
  return stage_ == Stage::opening ? check_opening(bytes) : check_proof(bytes);
}

Status Introduction::check_opening(std::span<const std::byte> bytes) {
  Status prefix = check_prefix(fd_, bytes);
  // Another version is told ours, so that its message can name both; junk is told nothing.
  if (!prefix.ok() && prefix.code() != Code::unsupported) return prefix;
  if (prefix.ok() && bytes.size() < opening_size) return {};
  PACE_TRY(make_nonce(accepting_));
  const auto mine = opening(accepting_);
  std::copy(mine.begin(), mine.end(), output_.begin());
  output_size_ = mine.size();
  input_size_ = 0;
  if (!prefix.ok()) {
    refusal_ = std::move(prefix);
    stage_ = Stage::answering;
    return {};
  }
  std::copy(bytes.begin() + prefix_size, bytes.begin() + opening_size, connecting_.begin());
  stage_ = Stage::proof;
  return {};
}

Status Introduction::check_proof(std::span<const std::byte> bytes) {
  if (bytes.size() < proof_size) return {};
  hello_ = decode_hello(bytes.data());
  const bool right = equal(bytes.data() + hello_size, proof('c', secret_, connecting_, accepting_, hello_));
  put<std::uint32_t>(output_.data() + output_size_, right ? accepted : wrong_secret);
  std::byte* const mac_at = output_.data() + output_size_ + 4;
  if (right) {
    const Digest mac = proof('a', secret_, connecting_, accepting_, hello_);
    std::copy(mac.begin(), mac.end(), mac_at);
  } else {
    std::fill_n(mac_at, mac_size, std::byte{0});
    hello_ = {};
    refusal_ = secret_error(fd_);
  }
  output_size_ += answer_size;
  input_size_ = 0;
  stage_ = Stage::answering;
  return {};
}

Status Introduction::flush() {
  while (!unsent().empty()) {
    const ssize_t sent = ::send(fd_, unsent().data(), unsent().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      output_sent_ += static_cast<std::size_t>(sent);
    else if (errno == EAGAIN)
      return {};
    else if (errno != EINTR)
      return Status(Code::remote, fmt::format("{} closed the connection during the handshake", other_side(fd_)));
  }
  return {};
}

Status Introduction::advance() {
  for (;;) {
    PACE_TRY(flush());
    if (!unsent().empty()) return {};
    if (stage_ == Stage::answering) {
      if (!refusal_.ok()) return refusal_;
      stage_ = Stage::done;
    }
    if (stage_ == Stage::done) return {};
    // Never more than this stage's bytes: what follows the handshake is not ours to read.
    const ssize_t received = ::recv(fd_, input_.data() + input_size_, expected() - input_size_, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return {};
    if (received <= 0)
      return Status(Code::remote, fmt::format("{} closed the connection during the handshake", other_side(fd_)));
    input_size_ += static_cast<std::size_t>(received);
    PACE_TRY(receive(std::span(input_).first(input_size_)));
  }
}

}  // namespace paceline
