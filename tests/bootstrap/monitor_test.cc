#include "bootstrap/monitor.h"

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
    const auto monitor = Monitor::start(1, std::move(assembly), [&](const ControlMessage& message) {
      if (const auto* death = std::get_if<Death>(&message)) how.set_value(death->how);
    });
    rank_0.reset();
    say(how.get_future().get());
  });
  const std::string said = child.line();
  if (said != "skipped") CHECK(said == "is lost: its host cannot be reached: Connection timed out");
}

}  // namespace paceline::testing
