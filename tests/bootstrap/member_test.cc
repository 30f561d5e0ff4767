#include "bootstrap/member.h"

#include <doctest/doctest.h>
#include <unistd.h>

using namespace paceline;

TEST_CASE("ranks in a sentence") {
  CHECK(listed({3}) == "rank 3");
  CHECK(listed({1, 2}) == "ranks 1, 2");
  CHECK(listed({1, 3, 4, 5, 9}) == "ranks 1, 3 to 5, 9");
  CHECK(listed({0, 1, 2, 3}) == "ranks 0 to 3");
}

TEST_CASE("a rank by name") { CHECK(named(3, Member{"node-b", "", "", 123}) == "rank 3 (node-b, pid 123)"); }

TEST_CASE("this process knows its host, its node and its number") {
  const Member member = this_member();
  CHECK_FALSE(member.host.empty());
  CHECK(member.pid == getpid());
  CHECK(member.node == this_member().node);
  CHECK(member.node.find("ipc:[") != std::string::npos);
  CHECK(member.node.find("mnt:[") != std::string::npos);
}
