// Ids that are made in another process than rank 0's. Forked ranks: tests/python/test_unique_id.py.
#include <doctest/doctest.h>
#include <sys/syscall.h>

#include <cerrno>

#include "bootstrap/forbidden.h"
#include "bootstrap/handshake.h"
#include "bootstrap/launch.h"
#include "bootstrap/made_elsewhere.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

// "joined 3" with the number of ranks, or the error.
std::string join_by(const Bytes& id, int rank, int size, double timeout = 20) {
  Result<Rendezvous> where = rendezvous_from_unique_id(id, rank, size, timeout);
  if (!where.ok()) return where.status().message();
  const auto session = join(std::move(*where));
  if (!session.ok()) return session.status().message();
  const auto all = (*session)->exchange(bytes("here"), in(10s));
  if (!all.ok()) return all.status().message();
  return "joined " + std::to_string(all->size());
}

// A process that makes an id, and joins as rank 1 of three if it is asked to.
class Maker {
 public:
  [[nodiscard]] const Bytes& id() const { return made_.id(); }
  std::string join_as_rank_1() {
    joins_.open(1);
    return made_.process().line();
  }
  void kill() { made_.process().kill(SIGKILL); }

 private:
  Gate joins_;
  MadeElsewhere made_{[this](const Bytes& id, const Child::Say& say) {
    joins_.await();
    say(join_by(id, 1, 3));
  }};
};

Child rank_of(const Bytes& id, int rank, int size, double timeout = 20) {
  return Child([&](const Child::Say& say) { say(join_by(id, rank, size, timeout)); });
}

}  // namespace

TEST_CASE("an id that is made by a process that is none of the ranks brings them together") {
  const Maker maker;
  std::vector<Child> ranks;
  for (const int rank : {2, 0, 1}) ranks.push_back(rank_of(maker.id(), rank, 3));
  for (Child& rank : ranks) CHECK(rank.line() == "joined 3");
}

TEST_CASE("an id that is made by rank 1 brings the ranks together") {
  Maker maker;
  Child rank_2 = rank_of(maker.id(), 2, 3), rank_0 = rank_of(maker.id(), 0, 3);
  CHECK(maker.join_as_rank_1() == "joined 3");
  CHECK(rank_0.line() == "joined 3");
  CHECK(rank_2.line() == "joined 3");
}

TEST_CASE("strangers at the ports of an id disturb nobody") {
  const Maker maker;
  std::vector<PrivateDescriptor> strangers;
  for (const std::size_t at : {8, 10}) {
    const int port = std::to_integer<int>(maker.id()[at]) | std::to_integer<int>(maker.id()[at + 1]) << 8;
    for (const char* said : {"", "GET / HTTP/1.1\r\n\r\n"}) {
      auto stranger = connect_to("127.0.0.1", port, in(5s));
      REQUIRE(stranger.ok());
      REQUIRE(send_all(stranger->get(), bytes(said), in(5s)).ok());
      strangers.push_back(std::move(*stranger));
    }
  }
  Child rank_1 = rank_of(maker.id(), 1, 2), rank_0 = rank_of(maker.id(), 0, 2);
  CHECK(rank_0.line() == "joined 2");
  CHECK(rank_1.line() == "joined 2");
}

TEST_CASE("of two ranks 0 the second learns it at once, also while ranks are missing") {
  const Maker maker;
  Child first = rank_of(maker.id(), 0, 2);
  const int port = std::to_integer<int>(maker.id()[10]) | std::to_integer<int>(maker.id()[11]) << 8;
  for (const auto deadline = in(10s); connect_to("127.0.0.1", port, in(1s)).ok() && Clock::now() < deadline;)
    std::this_thread::sleep_for(1ms);  // until it has come
  const auto begin = Clock::now();
  Child second = rank_of(maker.id(), 0, 2);
  const std::string said = second.line();
  CHECK_MESSAGE(said.find("a rank 0 has joined by it") != std::string::npos, said);
  CHECK(Clock::now() - begin < 3s);
  Child rank_1 = rank_of(maker.id(), 1, 2);
  CHECK(first.line() == "joined 2");
  CHECK(rank_1.line() == "joined 2");
}

TEST_CASE("the others learn why rank 0 cannot gather them, also those that come later") {
  const Maker maker;
  const auto rank_that_cannot_listen = [&] {
    return Child(
        [&](const Child::Say& say) { say(forbid(SYS_listen, EACCES) ? join_by(maker.id(), 0, 3, 300) : "skipped"); });
  };
  Child rank_1 = rank_of(maker.id(), 1, 3, 300), rank_0 = rank_that_cannot_listen();
  const std::string why = rank_0.line();
  if (why == "skipped") return;
  CHECK_MESSAGE(why.find("Permission denied") != std::string::npos, why);
  Child rank_2 = rank_of(maker.id(), 2, 3, 300);
  for (Child* const one : {&rank_1, &rank_2}) {
    const std::string said = one->line();
    CHECK_MESSAGE(said == why, said);
  }
}

TEST_CASE("the others learn of a rank 0 that has ended before it could gather them") {
  const Maker maker;
  Child rank_1 = rank_of(maker.id(), 1, 2, 300);
  const int port = std::to_integer<int>(maker.id()[10]) | std::to_integer<int>(maker.id()[11]) << 8;
  {
    const auto fd = connect_to("127.0.0.1", port, in(5s));
    REQUIRE(fd.ok());
    const std::string secret(reinterpret_cast<const char*>(maker.id().data()) + 64, 64);
    REQUIRE(introduce(fd->get(), secret, Hello{rank_0_connection, 0, 0, 0}, in(5s)).ok());
  }
  CHECK(rank_1.line() == "rank 0 ended before it could gather the others");
}

TEST_CASE("a rank without others takes the signpost of its id away") {
  const Maker maker;
  CHECK(rank_of(maker.id(), 0, 1).line() == "joined 1");
  CHECK(rank_of(maker.id(), 0, 2).line().find("nobody answers") != std::string::npos);
}

TEST_CASE("an id has one rank 0") {
  const Maker maker;
  Child rank_0 = rank_of(maker.id(), 0, 2), rank_1 = rank_of(maker.id(), 1, 2);
  CHECK(rank_0.line() == "joined 2");
  CHECK(rank_1.line() == "joined 2");
  CHECK(rank_of(maker.id(), 0, 2).line().find("a rank 0 has joined by it") != std::string::npos);
}

TEST_CASE("an id whose process has ended is of no use, and rank 0 says so at once") {
  Maker maker;
  maker.kill();
  const auto begin = Clock::now();
  const std::string said = rank_of(maker.id(), 0, 2).line();
  CHECK_MESSAGE(said.find("the process that made it has ended") != std::string::npos, said);
  CHECK(Clock::now() - begin < 5s);
}

TEST_CASE("an id's process that ends while ranks are missing ends their rendezvous, not at its limit alone") {
  Maker maker;
  Child rank_0 = rank_of(maker.id(), 0, 3, 300), rank_1 = rank_of(maker.id(), 1, 3, 8);
  std::this_thread::sleep_for(300ms);  // both have come, in most runs; rank 1, if it has not, gives up after 8 s
  maker.kill();
  const std::string said = rank_0.line();
  CHECK_MESSAGE(said.find("that made") != std::string::npos, said);
  CHECK_MESSAGE(rank_1.line().find("rank 0") != std::string::npos, said);
}
