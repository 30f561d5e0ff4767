#include "bootstrap/monitor.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <future>
#include <string>
#include <variant>

#include "bootstrap/forbidden.h"
#include "bootstrap/ranks.h"

namespace paceline::testing {

TEST_CASE("a rank whose host does not answer any more is said to be lost, not to have died") {
  Child child([](const Child::Say& say) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
    FileDescriptor rank_0(ends[0]);
    Assembly assembly;
    assembly.members.resize(2);
    assembly.connections.emplace_back(PrivateDescriptor(FileDescriptor(ends[1])));
    // As the kernel has it for a connection that it has probed in vain. The thread to come inherits this.
    if (!forbid(SYS_recvfrom, ETIMEDOUT)) return say("skipped");
    std::promise<std::string> how;
    const auto monitor = Monitor::start(
        1, std::move(assembly),
        [&](const ControlMessage& message) {
          if (const auto* death = std::get_if<Death>(&message)) how.set_value(death->how);
        },
        [] {});
    rank_0.reset();
    say(how.get_future().get());
  });
  const std::string said = child.line();
  if (said != "skipped") CHECK(said == "is lost: its host cannot be reached: Connection timed out");
}

TEST_CASE("a rank that cannot start its monitor says so, and is not taken for dead") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  FileDescriptor rank_0(ends[0]), rank_1(ends[1]);
  Child child([&](const Child::Say& say) {
    rank_0.reset();
    Assembly assembly;
    assembly.members.resize(2);
    assembly.connections.emplace_back(PrivateDescriptor(std::move(rank_1)));
    if (!forbid(SYS_eventfd2, EMFILE)) return say("skipped");
    const auto deliver = [](const ControlMessage&) {};
    say(Monitor::start(1, std::move(assembly), deliver, [] {}).status().message());
  });
  rank_1.reset();
  ControlConnection connection{PrivateDescriptor(std::move(rank_0))};
  std::vector<ControlMessage> messages;
  while (connection.receive(messages).ok() && wait_for(connection.fd(), POLLIN, in(20s)).ok()) {
  }
  connection.close();
  const std::string said = child.line();
  if (said == "skipped") return;
  CHECK(said.find(": cannot make an event descriptor") != std::string::npos);
  REQUIRE(messages.size() == 1);
  const auto* shortfall = std::get_if<Shortfall>(&messages[0]);
  REQUIRE(shortfall != nullptr);
  CHECK(shortfall->round == 0);
  CHECK(shortfall->reason.rank == 1);
  CHECK(shortfall->reason.message == said);
}

}  // namespace paceline::testing
