#include "bootstrap/socket.h"

#include <dlfcn.h>
#include <netdb.h>
#include <sys/syscall.h>

#include <cerrno>
#include <future>
#include <string_view>

#include "bootstrap/forbidden.h"
#include "bootstrap/ranks.h"
#include "bootstrap/threads.h"

namespace paceline::testing {
namespace {

// When the name server of "silent.example" answers. Never destroyed: a thread may wait for it still.
std::promise<void>& answers() {
  static auto* promise = new std::promise<void>();
  return *promise;
}
std::shared_future<void>& answer() {
  static auto* future = new std::shared_future<void>(answers().get_future());
  return *future;
}

}  // namespace
}  // namespace paceline::testing

// The library's calls, too.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool asks = hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (!asks || host == nullptr || std::string_view(host) != "silent.example") return real(host, service, hints, found);
  paceline::testing::answer().wait();
  return EAI_AGAIN;
}

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

TEST_CASE("a name server that does not answer is waited for until the deadline") {
  (void)answer();
  const int threads = living_threads();
  const auto begin = Clock::now();
  const Status status = connect_to("silent.example", 1, in(100ms)).status();
  CHECK(Clock::now() - begin < 10s);
  CHECK(status.message() == "the host name \"silent.example\" cannot be resolved: no name server has answered in time");
  CHECK(may_pass(status));
  answers().set_value();
  CHECK(resolve("silent.example", 1, in(10s)).status().message() ==
        "the host name \"silent.example\" cannot be resolved: Temporary failure in name resolution");
  CHECK(threads_are_back_to(threads));
}

TEST_CASE("names and numbers are resolved") {
  const auto name = resolve("localhost", 7, in(10s));
  REQUIRE_MESSAGE(name.ok(), name.status().message());
  CHECK(is_loopback(name->front()));
  CHECK(port_of(name->front()) == 7);
  CHECK(describe(resolve("10.0.0.1", 29500, Clock::now())->front()) == "10.0.0.1:29500");
  CHECK(describe(resolve("::1", 29500, Clock::now())->front()) == "[::1]:29500");
}

}  // namespace paceline::testing
