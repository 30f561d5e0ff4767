#include "bootstrap/control_connection.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <vector>

namespace paceline {
namespace {

TEST_CASE("so much is read of a connection at a time, whatever its other side sends, and no message is lost") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  const FileDescriptor other(ends[0]);
  ControlConnection connection{PrivateDescriptor(FileDescriptor(ends[1]))};
  const int room = 1 << 20;
  ::setsockopt(other.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);

  const Frame contribution = make_frame(Contribution{0, 1, Bytes(1000)});
  constexpr std::size_t count = 300;
  Bytes flood;
  for (std::size_t i = 0; i < count; ++i) flood.insert(flood.end(), contribution->begin(), contribution->end());
  REQUIRE(::send(other.get(), flood.data(), flood.size(), 0) == static_cast<ssize_t>(flood.size()));
  std::vector<ControlMessage> messages;
  CHECK(connection.receive(messages).ok());
  CHECK(messages.size() > 0);
  CHECK(messages.size() < count);
  CHECK(connection.receive(messages).ok());
  CHECK(messages.size() == count);
}

}  // namespace
}  // namespace paceline
