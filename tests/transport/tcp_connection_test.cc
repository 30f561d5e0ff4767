#include "transport/tcp_connection.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "transport/tcp_ranks.h"

namespace paceline {
namespace {

using Flow = TcpConnection::Flow;

TEST_CASE("inquiries are read so many at a time, and what is behind them is not taken for missing") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  const FileDescriptor other(ends[0]);
  TcpConnection connection(PrivateDescriptor(FileDescriptor(ends[1])), 1);
  const int room = 1 << 20;
  ::setsockopt(other.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);

  std::vector<std::byte> flood;
  for (std::uint32_t sequence = 1; sequence <= 5000; ++sequence) {
    const EncodedHeader header = encode({MessageKind::inquiry, 0, sum_of(1, sequence)});
    flood.insert(flood.end(), header.begin(), header.end());
  }
  REQUIRE(::send(other.get(), flood.data(), flood.size(), 0) == static_cast<ssize_t>(flood.size()));
  MessageHeader header;
  CHECK(connection.peek(&header, 0) == Flow::more);
  REQUIRE(connection.asked(0).has_value());
  CHECK(connection.asked(0)->sequence < 5000);
  CHECK(connection.peek(&header, 0) == Flow::later);
  CHECK(*connection.asked(0) == sum_of(1, 5000));
}

}  // namespace
}  // namespace paceline
