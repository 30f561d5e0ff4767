#include "comm/connect.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "bootstrap/ranks.h"

namespace paceline::testing {
namespace {

// Connects this rank to the others over TCP, as if each were on a node of its own; `between` runs once the cards have
// been shown. Says how that ended: code, rank, errno.
void connect_over_tcp(Session& session, Membership& membership, const Child::Say& say,
                      const std::function<void()>& between) {
  std::vector<Member> members = session.members();
  for (std::size_t rank = 0; rank < members.size(); ++rank) members[rank].node = std::to_string(rank);
  int exchanges = 0;
  const auto exchange = [&](std::span<const std::byte> mine) {
    auto shown = session.exchange(mine, in(60s));
    if (++exchanges == 1) between();
    return shown;
  };
  const auto made = connect(members, session.rank(), 1, membership, session.secret(), exchange, in(60s));
  if (made.ok()) return say("connected");
  const Status::Detail& detail = made.status().detail();
  say(std::string(name(detail.code)) + ", rank " + std::to_string(detail.rank) + ", errno " +
      std::to_string(detail.system_errno));
}

}  // namespace

TEST_CASE("a death while data connections are made ends the wait for them on every rank") {
  for (const int dies : {0, 1, 2}) {
    Children ranks(3, [&](Session& session, Membership& membership, const Child::Say& say) {
      connect_over_tcp(session, membership, say, [&] {
        if (session.rank() == dies) ::kill(::getpid(), SIGKILL);
      });
    });
    for (const int rank : {0, 1, 2})
      if (rank != dies)
        CHECK(ranks[rank].line() == std::string(name(Code::remote)) + ", rank " + std::to_string(dies) + ", errno 0");
  }
}

TEST_CASE("a first rank that dies before its turn to take the shared memory's name away leaves none") {
  const Gate gate;
  Children ranks(2, [&](Session& session, Membership& membership, const Child::Say& say) {
    int exchanges = 0;
    const auto exchange = [&](std::span<const std::byte> mine) {
      auto shown = session.exchange(mine, in(60s));
      if (++exchanges != 2) return shown;
      if (session.rank() == 1) gate.open(1);
      if (session.rank() == 0) {
        gate.await();  // the others have what it showed
        ::kill(::getpid(), SIGKILL);
      }
      return shown;
    };
    const auto made = connect(session.members(), session.rank(), 1, membership, session.secret(), exchange, in(60s));
    say(made.ok() ? "connected" : made.status().message());
  });
  CHECK(ranks[1].line() == "connected");
  CHECK(ranks[0].line() == "");  // it has ended
  const std::string prefix = "paceline-" + std::to_string(ranks[0].pid()) + "-";
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    CHECK(!entry.path().filename().string().starts_with(prefix));
}

TEST_CASE("a rank that lacks descriptors for data connections is the error of every rank, at once") {
  Children ranks(3, [](Session& session, Membership& membership, const Child::Say& say) {
    connect_over_tcp(session, membership, say, [&] {
      const rlimit none{3, 3};
      if (session.rank() == 1) (void)::setrlimit(RLIMIT_NOFILE, &none);
    });
  });
  for (const int rank : {0, 1, 2})
    CHECK(ranks[rank].line() == std::string(name(Code::system)) + ", rank 1, errno " + std::to_string(EMFILE));
}

}  // namespace paceline::testing
