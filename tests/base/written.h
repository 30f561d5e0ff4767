// What is logged in a test.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace paceline::testing {

// What `speak` writes to standard error, write by write.
template <class Speak>
std::vector<std::string> written(const Speak& speak) {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends.data()) == 0);  // keeps writes apart
  const FileDescriptor here(ends[0]);
  FileDescriptor there(ends[1]);
  const FileDescriptor before(dup(STDERR_FILENO));
  REQUIRE(dup2(there.get(), STDERR_FILENO) >= 0);
  speak();
  dup2(before.get(), STDERR_FILENO);
  std::vector<std::string> writes;
  std::array<char, 4096> text{};
  for (ssize_t got = 0; (got = recv(here.get(), text.data(), text.size(), 0)) > 0;)
    writes.emplace_back(text.data(), static_cast<std::size_t>(got));
  return writes;
}

}  // namespace paceline::testing
