#include "bootstrap/control_message.h"

#include <fmt/format.h>

#include <bit>
#include <type_traits>

namespace paceline {
namespace {

// fields(archive, message) names a message's fields once, for writing and reading alike.
template <class Archive, class M>
void member_fields(Archive& archive, M& member) {
  archive(member.host, member.node, member.address, member.pid);
}
template <class Archive, class D>
void detail_fields(Archive& archive, D& detail) {
  archive(detail.code, detail.message, detail.rank, detail.host, detail.peer, detail.collective, detail.sequence,
          detail.system_errno);
}

template <class Archive, class T>
void fields(Archive& archive, T& message) {
  using M = std::remove_const_t<T>;
  if constexpr (std::is_same_v<M, Join>) {
    archive(message.size);
    member_fields(archive, message.member);
  } else if constexpr (std::is_same_v<M, Arrival>) {
    archive(message.rank);
    member_fields(archive, message.member);
  } else if constexpr (std::is_same_v<M, Refusal>) {
    detail_fields(archive, message.reason);
  } else if constexpr (std::is_same_v<M, Contribution>) {
    archive(message.round, message.rank, message.bytes);
  } else if constexpr (std::is_same_v<M, Shortfall>) {
    archive(message.round);
    detail_fields(archive, message.reason);
  } else if constexpr (std::is_same_v<M, Verdict>) {
    archive(message.communicator);
    detail_fields(archive, message.reason);
  } else if constexpr (std::is_same_v<M, Death>) {
    archive(message.rank, message.how);
  } else if constexpr (std::is_same_v<M, Suspicion>) {
    archive(message.communicator, message.ranks, message.waiting, message.waiting_for, message.call.sequence,
            message.call.what, message.call.size, message.seconds);
  } else if constexpr (std::is_same_v<M, Ping>) {
    archive(message.inquiry, message.communicator);
  } else if constexpr (std::is_same_v<M, Pong>) {
    archive(message.inquiry, message.state, message.sequence, message.waiting_for);
  } else if constexpr (std::is_same_v<M, Left>) {
    archive(message.communicator, message.rank, message.sequence, message.size);
  } else if constexpr (std::is_same_v<M, Farewell>) {
    archive(message.rank);
  } else {
    static_assert(std::is_same_v<M, GatheringPlace>);
    archive(message.address, message.port);
  }
}

class Writer {
 public:
  template <class... Field>
  void operator()(const Field&... field) {
    (write(field), ...);
  }
  void number(std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
  }

  Bytes bytes;

 private:
  template <class Number>
  void write(const Number& value) {
    if constexpr (std::is_same_v<Number, double>)
      number(std::bit_cast<std::uint64_t>(value), sizeof value);
    else
      number(static_cast<std::uint64_t>(value), sizeof value);
  }
  template <class Element>
  void write(const std::vector<Element>& values) {
    number(values.size(), 4);
    for (const Element& value : values) write(value);
  }
  void write(const std::string& text) {
    number(text.size(), 4);
    const auto raw = std::as_bytes(std::span(text));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  void write(const Bytes& blob) {
    number(blob.size(), 4);
    bytes.insert(bytes.end(), blob.begin(), blob.end());
  }
};

// Once it has failed it gives zeros and empty texts, so that only the end needs a check.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class... Field>
  void operator()(Field&... field) {
    (read(field), ...);
  }
  [[nodiscard]] bool complete() const { return good_ && rest_.empty(); }
  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const auto raw = take(size);
    for (std::size_t i = 0; i < raw.size(); ++i) value |= static_cast<std::uint64_t>(raw[i]) << (8 * i);
    return value;
  }

 private:
  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size()) good_ = false;
    if (!good_) return {};
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  template <class Number>
  void read(Number& value) {
    if constexpr (std::is_same_v<Number, double>)
      value = std::bit_cast<double>(number(sizeof value));
    else
      value = static_cast<Number>(number(sizeof value));
  }
  void read(Code& code) {
    code = static_cast<Code>(number(sizeof code));
    if (code <= Code::ok || code > Code::unsupported) good_ = false;
  }
  void read(Pong::State& state) {
    state = static_cast<Pong::State>(number(sizeof state));
    if (state > Pong::State::elsewhere) good_ = false;
  }
  void read(std::vector<std::uint32_t>& values) {
    const auto raw = take(number(4) * 4);
    values.resize(raw.size() / 4);
    Reader elements(raw);
    for (std::uint32_t& value : values) elements(value);
  }
  void read(std::string& text) {
    const auto raw = take(number(4));
    text.assign(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  void read(Bytes& blob) {
    const auto raw = take(number(4));
    blob.assign(raw.begin(), raw.end());
  }

  std::span<const std::byte> rest_;
  bool good_ = true;
};

template <std::size_t kind = 0>
Result<ControlMessage> decode_as(std::size_t wanted, Reader& reader) {
  if constexpr (kind == std::variant_size_v<ControlMessage>) {
    return Status(Code::remote, fmt::format("a control message of the unknown kind {}", wanted));
  } else {
    if (wanted != kind) return decode_as<kind + 1>(wanted, reader);
    std::variant_alternative_t<kind, ControlMessage> message;
    fields(reader, message);
    if (!reader.complete()) return Status(Code::remote, fmt::format("a malformed control message of kind {}", kind));
    return ControlMessage(std::move(message));
  }
}

}  // namespace

Bytes encode(const ControlMessage& message) {
  Writer writer;
  writer.number(0, 4);  // the length, known at the end
  writer.number(message.index(), 1);
  std::visit([&](const auto& fields_of) { fields(writer, fields_of); }, message);
  const std::size_t length = writer.bytes.size() - 4;
  for (std::size_t i = 0; i < 4; ++i) writer.bytes[i] = static_cast<std::byte>(length >> (8 * i));
  return std::move(writer.bytes);
}

Result<ControlMessage> decode(std::span<const std::byte> body) {
  Reader reader(body);
  const std::uint64_t kind = reader.number(1);
  return body.empty() ? Status(Code::remote, "an empty control message") : decode_as(kind, reader);
}

void FrameReader::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<ControlMessage>> FrameReader::next() {
  const auto rest = std::span<const std::byte>(buffer_).subspan(begin_);
  const auto forget = [this] {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  };
  if (rest.size() < 4) {
    forget();
    return std::optional<ControlMessage>();
  }
  Reader header(rest);
  const std::uint64_t length = header.number(4);
  if (length > largest_body) return Status(Code::remote, fmt::format("a control message of {} bytes", length));
  if (rest.size() - 4 < length) {
    forget();
    return std::optional<ControlMessage>();
  }
  Result<ControlMessage> message = decode(rest.subspan(4, length));
  PACE_TRY(message.status());
  begin_ += 4 + length;
  return std::optional<ControlMessage>(std::move(*message));
}

}  // namespace paceline
