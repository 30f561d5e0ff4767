#include "bootstrap/socket.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>

#include "bootstrap/ranks.h"

namespace paceline::testing {
namespace {

// From now on accept4 fails in this process, as where a sandbox forbids it.
bool forbid_accepting() {
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_accept4, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(rules), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("an error of accepting that is not of one connection is told") {
  Child child([](const Child::Say& say) {
    const auto listener = listen_at("127.0.0.1", 0);
    if (!listener.ok() || !forbid_accepting()) return say("skipped");
    say(accept_from(listener->get()).status().message());
  });
  const std::string said = child.line();
  if (said != "skipped") CHECK(said == "cannot accept a connection: Permission denied");
}

}  // namespace paceline::testing
