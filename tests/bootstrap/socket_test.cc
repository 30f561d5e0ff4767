#include "bootstrap/socket.h"

#include <sys/syscall.h>

#include <cerrno>

#include "bootstrap/forbidden.h"
#include "bootstrap/ranks.h"

namespace paceline::testing {

TEST_CASE("an error of accepting that is not of one connection is told") {
  Child child([](const Child::Say& say) {
    const auto listener = listen_at("127.0.0.1", 0);
    if (!listener.ok() || !forbid(SYS_accept4, EACCES)) return say("skipped");
    say(accept_from(listener->get()).status().message());
  });
  const std::string said = child.line();
  if (said != "skipped") CHECK(said == "cannot accept a connection: Permission denied");
}

}  // namespace paceline::testing
