#include "base/private_descriptor.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace paceline {
namespace {

// Whether what a forked child finds is true.
template <class Finding>
bool in_child(Finding finding) {
  const ::pid_t child = ::fork();
  if (child == 0) ::_exit(finding() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_nothing(int fd) {
  std::array<char, 64> name{};
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name.data(), name.size());
  return length > 0 && std::string(name.data(), static_cast<std::size_t>(length)) == "/dev/null";
}

FileDescriptor one_end(FileDescriptor& other) {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  other = FileDescriptor(ends[1]);
  return FileDescriptor(ends[0]);
}

TEST_CASE("a private descriptor is its process's, wherever it is moved") {
  FileDescriptor other;
  PrivateDescriptor first(one_end(other));
  const int fd = first.get();
  CHECK(in_child([&] { return is_nothing(fd) && !is_nothing(other.get()); }));
  PrivateDescriptor second(std::move(first));
  CHECK_FALSE(first.valid());
  CHECK(second.get() == fd);
  CHECK(in_child([&] { return is_nothing(fd); }));
  PrivateDescriptor third;
  third = std::move(second);
  CHECK(third.get() == fd);
  CHECK(in_child([&] { return is_nothing(fd); }));
  CHECK_FALSE(is_nothing(fd));
}

TEST_CASE("a private descriptor that is closed leaves its number to whoever has it next") {
  FileDescriptor other;
  PrivateDescriptor once(one_end(other));
  const int fd = once.get();
  once.reset();
  CHECK(::fcntl(fd, F_GETFD) < 0);
  const FileDescriptor next(::dup(other.get()));
  REQUIRE(next.get() == fd);
  CHECK(in_child([&] { return !is_nothing(fd); }));
}

TEST_CASE("the other side of a private descriptor sees its end although a forked child lives") {
  FileDescriptor other;
  PrivateDescriptor once(one_end(other));
  std::array<int, 2> lives{};
  REQUIRE(::pipe2(lives.data(), O_CLOEXEC) == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::close(lives[1]);
    char none = 0;
    ::_exit(::read(lives[0], &none, 1) == 0 ? 0 : 1);  // until its parent says so
  }
  once.reset();
  pollfd end{other.get(), POLLIN, 0};
  CHECK(::poll(&end, 1, 20'000) == 1);  // when the child has begun
  char none = 0;
  CHECK(::recv(other.get(), &none, 1, MSG_DONTWAIT) == 0);
  ::close(lives[1]);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  ::close(lives[0]);
}

}  // namespace
}  // namespace paceline
