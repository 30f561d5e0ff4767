// Real sockets, with real files as the handles.
#include "cuda/memory/handle_socket.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>

#include "transport/child.h"

namespace paceline::cuda {
namespace {

using Outcome = HandleSocket::Outcome;
constexpr std::uint64_t token = 4711;

struct Letter {
  std::uint64_t number = 0;
  std::array<char, 120> rest{};
};
auto bytes_of(const Letter& letter) { return std::as_bytes(std::span(&letter, 1)); }
auto bytes_of(Letter& letter) { return std::as_writable_bytes(std::span(&letter, 1)); }

std::string new_name() {
  static int count = 0;
  return "/paceline-" + std::to_string(getpid()) + "-door" + std::to_string(count++);
}

long open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// Two ends, through a door.
struct Connection {
  HandleSocket first;
  HandleSocket second;
  Connection() {
    const std::string name = new_name();
    auto door = HandleDoor::open(name, token);
    REQUIRE_MESSAGE(door.ok(), door.status().message());
    auto entered = HandleDoor::enter(name, token, 7);
    REQUIRE_MESSAGE(entered.ok(), entered.status().message());
    second = std::move(*entered);
    auto guest = (*door)->admit();
    REQUIRE(guest.rank == 7);
    first = std::move(guest.socket);
  }
};

// A connection of our own making, with whatever hello.
FileDescriptor connect_raw(const std::string& name) {
  FileDescriptor raw(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/dev/shm" + name;
  std::copy(path.begin(), path.end(), address.sun_path);
  REQUIRE(::connect(raw.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return raw;
}

FileDescriptor file_with(const std::string& text) {
  FileDescriptor file(::memfd_create("a handle", MFD_CLOEXEC));
  REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  return file;
}
std::string text_of(const FileDescriptor& file) {
  std::array<char, 64> text{};
  const ssize_t length = ::pread(file.get(), text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

TEST_CASE("handle socket: a letter brings its number and its file") {
  const long before = open_files();
  {
    Connection ends;
    const FileDescriptor sent = file_with("mine");
    CHECK(ends.second.send(bytes_of(Letter{5}), sent.get()) == Outcome::done);
    CHECK(ends.first.send(bytes_of(Letter{6})) == Outcome::done);
    Letter letter;
    FileDescriptor got;
    CHECK(ends.first.receive(bytes_of(letter), got) == Outcome::done);
    CHECK(letter.number == 5);
    CHECK(text_of(got) == "mine");
    CHECK(ends.second.receive(bytes_of(letter), got) == Outcome::done);
    CHECK(letter.number == 6);
    CHECK_FALSE(got.valid());
    CHECK(ends.first.receive(bytes_of(letter), got) == Outcome::later);
  }
  CHECK(open_files() == before);
}

TEST_CASE("handle socket: a full queue loses nothing and keeps the order") {
  Connection ends;
  const FileDescriptor file = file_with("one of many");
  std::uint64_t sent = 0;
  while (sent < 100000 && ends.second.send(bytes_of(Letter{sent}), file.get()) == Outcome::done) ++sent;
  REQUIRE(sent < 100000);
  CHECK(sent > 64);  // more than the usual queue of a datagram socket
  CHECK(ends.second.open());
  Letter letter;
  FileDescriptor got;
  for (std::uint64_t number = 0; number < sent; ++number) {
    REQUIRE(ends.first.receive(bytes_of(letter), got) == Outcome::done);
    REQUIRE(letter.number == number);
    REQUIRE(got.valid());
  }
  CHECK(ends.first.receive(bytes_of(letter), got) == Outcome::later);
  CHECK(ends.second.send(bytes_of(Letter{sent}), file.get()) == Outcome::done);
  CHECK(ends.first.receive(bytes_of(letter), got) == Outcome::done);
  CHECK(letter.number == sent);
}

TEST_CASE("handle socket: what was not taken is closed with the connection") {
  const long before = open_files();
  struct stat facts {};
  {
    Connection ends;
    const FileDescriptor file = file_with("never taken");
    for (int i = 0; i < 5; ++i) REQUIRE(ends.second.send(bytes_of(Letter{}), file.get()) == Outcome::done);
    REQUIRE(::fstat(file.get(), &facts) == 0);
  }
  CHECK(open_files() == before);
}

TEST_CASE("handle socket: the death of the other process is an answer, not a signal") {
  const std::string name = new_name();
  auto door = HandleDoor::open(name, token);
  REQUIRE(door.ok());
  Pipe ready;
  Child child([&] {
    auto socket = HandleDoor::enter(name, token, 1);
    if (!socket.ok() || socket->send(bytes_of(Letter{9})) != Outcome::done || !ready.put(1)) return false;
    for (;;) pause();
  });
  int one = 0;
  REQUIRE(ready.get(&one));
  auto guest = (*door)->admit();
  REQUIRE(guest.rank == 1);
  kill(child.pid(), SIGKILL);
  CHECK_FALSE(child.ended_well());
  Letter letter;
  FileDescriptor got;
  // What it had sent comes first.
  CHECK(guest.socket.receive(bytes_of(letter), got) == Outcome::done);
  CHECK(letter.number == 9);
  CHECK(guest.socket.receive(bytes_of(letter), got) == Outcome::gone);
  CHECK(guest.socket.send(bytes_of(letter)) == Outcome::gone);
  CHECK_FALSE(guest.socket.open());
}

TEST_CASE("handle socket: sending to the dead is an answer, too, whatever they have not read") {
  Connection ends;
  REQUIRE(ends.second.send(bytes_of(Letter{}), file_with("in its queue").get()) == Outcome::done);
  ends.first = HandleSocket();
  CHECK(ends.second.send(bytes_of(Letter{})) == Outcome::gone);
  CHECK_FALSE(ends.second.open());
}

TEST_CASE("handle door: its name is the user's own, and goes with it") {
  const std::string name = new_name();
  {
    auto door = HandleDoor::open(name, token);
    REQUIRE(door.ok());
    struct stat facts {};
    REQUIRE(::stat(("/dev/shm" + name).c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0600);
    CHECK(S_ISSOCK(facts.st_mode));
    CHECK_FALSE(HandleDoor::open(name, token).ok());
  }
  CHECK_FALSE(HandleDoor::enter(name, token, 1).ok());
}

TEST_CASE("handle door: strangers are sent away, and who comes after them is let in") {
  const long before = open_files();
  {
    const std::string name = new_name();
    auto door = HandleDoor::open(name, token);
    REQUIRE(door.ok());
    auto wrong_token = HandleDoor::enter(name, token + 1, 1);
    const FileDescriptor silent = connect_raw(name);
    const FileDescriptor babbling = connect_raw(name);
    REQUIRE(::send(babbling.get(), "hello", 5, 0) == 5);
    auto negative = HandleDoor::enter(name, token, -3);
    auto right = HandleDoor::enter(name, token, 2);
    REQUIRE(right.ok());
    auto guest = (*door)->admit();
    CHECK(guest.rank == 2);
    CHECK((*door)->admit().rank == -1);
    Letter letter;
    FileDescriptor got;
    REQUIRE(wrong_token.ok());
    CHECK(wrong_token->receive(bytes_of(letter), got) == Outcome::gone);
    CHECK(negative->receive(bytes_of(letter), got) == Outcome::gone);
    CHECK(right->receive(bytes_of(letter), got) == Outcome::later);
  }
  CHECK(open_files() == before);
}

TEST_CASE("handle socket: letters of another length, or with two files, end the connection and leave no file open") {
  const long before = open_files();
  for (const bool short_letter : {true, false}) {
    const std::string name = new_name();
    auto door = HandleDoor::open(name, token);
    REQUIRE(door.ok());
    const FileDescriptor raw = connect_raw(name);
    const struct {
      std::uint64_t token;
      std::int64_t rank;
    } hello{token, 3};
    REQUIRE(::send(raw.get(), &hello, sizeof hello, 0) == sizeof hello);
    auto guest = (*door)->admit();
    REQUIRE(guest.rank == 3);
    const FileDescriptor file = file_with("twice");
    const std::array<int, 2> files{file.get(), file.get()};
    Letter letter;
    iovec data{&letter, short_letter ? sizeof letter - 1 : sizeof letter};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(short_letter ? sizeof(int) : sizeof files);
    std::memcpy(CMSG_DATA(header), files.data(), sizeof files);
    REQUIRE(::sendmsg(raw.get(), &message, 0) > 0);
    FileDescriptor got;
    CHECK(guest.socket.receive(bytes_of(letter), got) == Outcome::gone);
    CHECK_FALSE(got.valid());
  }
  CHECK(open_files() == before);
}

TEST_CASE("handle socket: a forked child holds no connection") {
  Connection ends;
  Pipe runs;
  Pipe let_go;
  Child child([&] {
    int one = 0;
    return runs.put(1) && let_go.get(&one);
  });
  int one = 0;
  REQUIRE(runs.get(&one));
  ends.first = HandleSocket();
  Letter letter;
  FileDescriptor got;
  CHECK(ends.second.receive(bytes_of(letter), got) == Outcome::gone);
  CHECK(let_go.put(1));
  CHECK(child.ended_well());
}

}  // namespace
}  // namespace paceline::cuda
