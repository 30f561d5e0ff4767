#include "bootstrap/rendezvous.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "bootstrap/handshake.h"
#include "bootstrap/ranks.h"
#include "bootstrap/receive_introduction.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

using Joined = Result<std::shared_ptr<Session>>;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

PrivateDescriptor stranger(int port) {
  for (const auto deadline = in(10s); Clock::now() < deadline;) {
    Result<PrivateDescriptor> fd = connect_to("127.0.0.1", port, deadline);
    if (fd.ok()) return std::move(*fd);
    std::this_thread::sleep_for(1ms);
  }
  FAIL("rank 0 does not listen");
  return {};
}

void say(const PrivateDescriptor& fd, std::string_view text) {
  REQUIRE(send_all(fd.get(), std::as_bytes(std::span(text)), in(5s)).ok());
}

}  // namespace

TEST_CASE("all ranks meet and know each other") {
  const auto sessions = join_all(5);
  for (int rank = 0; rank < 5; ++rank) {
    const auto& session = sessions[static_cast<std::size_t>(rank)];
    CHECK(session->rank() == rank);
    CHECK(session->size() == 5);
    CHECK(session->secret() == "a secret");
    for (const Member& member : session->members()) {
      CHECK(member.pid == getpid());
      CHECK(member.address == "127.0.0.1");
      CHECK(member.node == session->members()[0].node);
      CHECK_FALSE(member.host.empty());
    }
  }
}

TEST_CASE("ranks meet over IPv6, and rank 0 may come last") {
  const FileDescriptor probe = [] {
    Result<FileDescriptor> fd = listen_at("::1", 0);
    return fd.ok() ? std::move(*fd) : FileDescriptor();
  }();
  if (!probe.valid()) return;  // this machine has no IPv6
  const int port = free_port();
  const auto results = in_threads(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(50ms);
    Rendezvous where = rendezvous(rank, 2, port);
    where.address = "::1";
    return join(std::move(where));
  });
  for (const Joined& joined : results) {
    REQUIRE(joined.ok());
    CHECK((*joined)->members()[1].address == "::1");
  }
}

TEST_CASE("every rank that came learns which did not") {
  const int port = free_port();
  const auto results = in_threads(3, [&](int rank) { return join(rendezvous(rank, 6, port, 2)); });
  for (const Joined& joined : results) {
    CHECK(joined.status().code() == Code::timeout);
    CHECK(joined.status().message() == "ranks 3 to 5 did not come to the rendezvous within 2 s");
    CHECK(joined.status().detail().rank == 3);
  }
}

TEST_CASE("the first to lose patience speaks for all") {
  const int port = free_port();
  const auto begin = Clock::now();
  const auto results = in_threads(3, [&](int rank) { return join(rendezvous(rank, 4, port, rank == 2 ? 2 : 30)); });
  CHECK(Clock::now() - begin < 20s);
  for (const Joined& joined : results)
    CHECK(joined.status().message() == "rank 3 did not come to the rendezvous within 2 s");
}

TEST_CASE("a rank that has lost patience first does not accuse rank 0, which waits too") {
  const int port = free_port();
  const auto results =
      in_threads(2, [&](int rank) { return join(rendezvous(rank, 3, port, rank == 0 ? 20 : 2.5)).status(); });
  for (const Status& status : results) CHECK(status.message() == "rank 2 did not come to the rendezvous within 2.5 s");
}

TEST_CASE("a rank 0 that is silent is named, not those that it would tell of") {
  const FileDescriptor listener = std::move(*listen_at("127.0.0.1", 0));
  std::thread rank_0([&] {
    PrivateDescriptor fd;
    while (!fd.valid() && wait_for(listener.get(), POLLIN, in(10s)).ok()) fd = std::move(*accept_from(listener.get()));
    if (!receive_introduction(fd.get(), "a secret", in(10s)).ok()) return;
    const Member member{"node-a", "", "", 7};
    for (const std::uint32_t rank : {0, 1}) (void)send_all(fd.get(), encode(Arrival{rank, member}), in(5s));
    std::array<std::byte, 4096> ignored;  // until the other side has given up
    while (receive_some(fd.get(), ignored, in(20s)).ok()) continue;
  });
  const Status status = join(rendezvous(1, 4, port_of(local_address(listener.get())), 4)).status();
  rank_0.join();
  CHECK(status.code() == Code::timeout);
  CHECK(status.detail().rank == 0);
  CHECK(status.message().starts_with("rank 0 (node-a, pid 7) has not been heard of for "));
}

TEST_CASE("without rank 0 the others say that it is missing, and why") {
  const Joined joined = join(rendezvous(1, 2, free_port(), 1));
  CHECK(joined.status().code() == Code::timeout);
  CHECK(joined.status().detail().rank == 0);
  CHECK(contains(joined.status().message(), "rank 0 did not come to the rendezvous at 127.0.0.1 port "));
  CHECK(contains(joined.status().message(), "Connection refused"));
}

TEST_CASE("an address that nobody listens on is given up sooner than a rank 0 that is not ready") {
  Rendezvous where = rendezvous(1, 2, free_port(), 60);
  where.silence_timeout = 0.2;
  const Joined joined = join(std::move(where));
  CHECK(joined.status().code() == Code::timeout);
  CHECK(contains(joined.status().message(), "rank 0 did not come to the rendezvous at 127.0.0.1 port "));
  CHECK(contains(joined.status().message(), " within 0.2 s (the last attempt: "));
}

TEST_CASE("two ranks with one number: everybody learns of both processes") {
  const int port = free_port();
  std::vector<Child> children;
  for (const int rank : {1, 2, 1}) {
    const bool claims_again = children.size() == 2;
    children.emplace_back([&](const Child::Say& say) {
      if (claims_again) std::this_thread::sleep_for(1s);  // until rank 2 is there: late ones are told for 0.5 s only
      say(join(rendezvous(rank, 4, port)).status().message());
    });
  }
  const Joined joined = join(rendezvous(0, 4, port));
  const std::string message = joined.status().message();
  const std::string host = std::string(message, message.rfind(' ') + 1);
  const auto expected = [&](int first, int second) {
    return fmt::format("rank 1 is claimed twice: by pid {} on {} and by pid {} on {}", children[first].pid(), host,
                       children[second].pid(), host);
  };
  CHECK((message == expected(0, 2) || message == expected(2, 0)));
  CHECK(joined.status().detail().rank == 1);
  for (Child& child : children) CHECK(child.line() == message);
}

TEST_CASE("two sizes: everybody learns who was started with which") {
  const int port = free_port();
  const auto results = in_threads(2, [&](int rank) { return join(rendezvous(rank, rank == 0 ? 3 : 8, port)); });
  for (const Joined& joined : results) {
    CHECK(joined.status().code() == Code::invalid_usage);
    CHECK(contains(joined.status().message(), "rank 1 ("));
    CHECK(contains(joined.status().message(), ") was started as one of 8 ranks, rank 0 ("));
    CHECK(contains(joined.status().message(), ") as one of 3: give all the same size"));
  }
}

TEST_CASE("a rank with another secret learns it at once; the others, that it did not come, and why") {
  const int port = free_port();
  const auto results = in_threads(3, [&](int rank) {
    Rendezvous where = rendezvous(rank, 3, port, 3);
    if (rank == 2) where.secret = "another secret";
    return join(std::move(where));
  });
  CHECK(contains(results[2].status().message(), "the secret does not match"));
  CHECK(contains(results[0].status().message(),
                 "rank 2 did not come to the rendezvous within 3 s (a connection was "
                 "dropped: 127.0.0.1:"));
  CHECK(contains(results[0].status().message(), "the secret does not match"));
  CHECK(contains(results[1].status().message(), "rank 2 did not come to the rendezvous within 3 s"));
}

TEST_CASE("another version is named by rank 0") {
  Rendezvous where = rendezvous(0, 2, 0, 0.5);
  where.listener = PrivateDescriptor(std::move(*listen_at("127.0.0.1", 0)));
  const PrivateDescriptor fd = stranger(port_of(local_address(where.listener.get())));
  say(fd, std::string_view("PACELINE\x06\0\0\0", 12));  // there before rank 0 looks
  const Joined joined = join(std::move(where));
  std::byte byte{};
  CHECK(receive_some(fd.get(), std::span(&byte, 1), in(5s)).ok());
  CHECK(contains(joined.status().message(), "rank 1 did not come"));
  CHECK(contains(joined.status().message(),
                 "speaks version 6, this is version 5: install the same Paceline on all "
                 "nodes"));
}

TEST_CASE("a rank that dies during the rendezvous ends it for all") {
  const int port = free_port();
  Child dying([&](const Child::Say&) {
    const Rendezvous where = rendezvous(1, 3, port);
    const Result<PrivateDescriptor> fd = reach(where, control_connection, in(10s));
    (void)send_all(fd->get(), encode(Join{3, Member{"node-b", "", "", getpid()}}), in(5s));
  });
  const Joined joined = join(rendezvous(0, 3, port));
  CHECK(joined.status().code() == Code::remote);
  CHECK(joined.status().message() ==
        fmt::format("rank 1 (node-b, pid {}) died during the rendezvous: its control connection closed", dying.pid()));
}

TEST_CASE("a port in use and an address of another machine are named, with the remedy") {
  const FileDescriptor taken = std::move(*listen_at("127.0.0.1", 0));
  const Joined in_use = join(rendezvous(0, 2, port_of(local_address(taken.get()))));
  CHECK(in_use.status().code() == Code::system);
  CHECK(contains(in_use.status().message(), "Address already in use; another job or another rank 0 listens there"));

  Rendezvous elsewhere = rendezvous(0, 2, 29500);
  elsewhere.address = "192.0.2.1";  // TEST-NET-1: nobody's
  const Joined not_local = join(std::move(elsewhere));
  CHECK(contains(not_local.status().message(), "cannot listen on 192.0.2.1:29500"));
  CHECK(contains(not_local.status().message(), "the address is none of this machine's"));
}

TEST_CASE("strangers do not hold the job up: junk, half a hello, a hundred silent connections") {
  const int port = free_port();
  std::vector<PrivateDescriptor> strangers;
  std::atomic<bool> crowd_is_there = false;
  const auto begin = Clock::now();
  const auto results = in_threads(4, [&](int rank) {
    if (rank == 3) {  // plays the strangers, before it comes itself
      strangers.push_back(stranger(port));
      say(strangers.back(), "GET / HTTP/1.1\r\n\r\n");
      strangers.push_back(stranger(port));
      say(strangers.back(), std::string_view("PACELINE\x05\0\0\0 a nonce", 20));
      for (int i = 0; i < 100; ++i) strangers.push_back(stranger(port));
      crowd_is_there = true;
    }
    while (rank != 0 && !crowd_is_there) std::this_thread::sleep_for(1ms);
    return join(rendezvous(rank, 4, port));
  });
  for (const Joined& joined : results) CHECK_MESSAGE(joined.ok(), joined.status().message());
  CHECK(Clock::now() - begin < introduction_time);  // after which strangers are dropped
}

TEST_CASE("more silent connections than are allowed make way") {
  const int port = free_port();
  std::vector<PrivateDescriptor> strangers;
  const auto results = in_threads(2, [&](int rank) {
    if (rank == 1)
      for (int i = 0; i < 300; ++i) strangers.push_back(stranger(port));
    return join(rendezvous(rank, 2, port));
  });
  for (const Joined& joined : results) CHECK_MESSAGE(joined.ok(), joined.status().message());
}

TEST_CASE("a rank that has proved who it is keeps its place in a crowd of strangers") {
  const int port = free_port();
  std::thread rank_1([&] {
    const Rendezvous where = rendezvous(1, 2, port);
    const Result<PrivateDescriptor> fd = reach(where, control_connection, in(10s));
    REQUIRE(fd.ok());
    std::vector<PrivateDescriptor> strangers;
    for (int i = 0; i < 256; ++i) strangers.push_back(stranger(port));
    CHECK(wait_for(strangers.front().get(), POLLIN, in(5s)).ok());  // rank 0 makes room, of those who came later
    CHECK(send_all(fd->get(), encode(Join{2, Member{"node-b", "", "", getpid()}}), in(5s)).ok());
    std::byte byte{};
    CHECK(receive_some(fd->get(), std::span(&byte, 1), in(5s)).ok());
  });
  const Joined joined = join(rendezvous(0, 2, port));
  CHECK_MESSAGE(joined.ok(), joined.status().message());
  rank_1.join();
}

TEST_CASE("too few descriptors is an error that names the limit") {
  const auto with_none_left = [](Rendezvous& where, const Child::Say& say) {
    const auto first_free = static_cast<rlim_t>(FileDescriptor(::dup(0)).get());
    const rlimit limit{first_free, first_free};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    say(join(std::move(where)).status().message());
  };
  // The connection that rank 0 cannot accept is there before rank 0: it would be reset by rank 0's end, perhaps before
  // this side has seen that it stood.
  Rendezvous of_rank_0 = rendezvous(0, 2, 0, 5);
  of_rank_0.listener = PrivateDescriptor(std::move(*listen_at("127.0.0.1", 0)));
  const PrivateDescriptor knock = stranger(port_of(local_address(of_rank_0.listener.get())));
  const std::string by_rank_0 = Child([&](const Child::Say& say) { with_none_left(of_rank_0, say); }).line();
  CHECK(by_rank_0.starts_with("rank 0 ("));
  CHECK(contains(by_rank_0, "cannot accept a connection: Too many open files"));
  CHECK(contains(by_rank_0, "raise its limit with `ulimit -n`"));

  Rendezvous of_rank_1 = rendezvous(1, 2, free_port(), 5);
  const std::string by_rank_1 = Child([&](const Child::Say& say) { with_none_left(of_rank_1, say); }).line();
  CHECK(by_rank_1.starts_with("rank 1 ("));
  CHECK(contains(by_rank_1, "raise its limit with `ulimit -n`"));
}

TEST_CASE("ranks that cannot be are refused, and the listener is closed") {
  CHECK(join(rendezvous(2, 2, 1)).status().code() == Code::invalid_argument);
  CHECK(join(rendezvous(-1, 2, 1)).status().code() == Code::invalid_argument);
  CHECK(join(rendezvous(0, 0, 1)).status().code() == Code::invalid_argument);
  Rendezvous one = rendezvous(0, 1, 0);
  one.listener = PrivateDescriptor(std::move(*listen_at("127.0.0.1", 0)));
  const int listener = one.listener.get();
  CHECK(join(std::move(one)).ok());
  CHECK(::fcntl(listener, F_GETFD) == -1);
}

TEST_CASE("who waits for the others asks whether to go on") {
  for (const int here : {0, 1}) {
    CAPTURE(here);
    const int port = free_port();
    std::thread other([&] {
      const Status status = join(rendezvous(1 - here, 3, port)).status();
      CHECK(status.code() == Code::aborted);
      CHECK(status.detail().rank == here);
    });
    const Interrupted soon;
    const auto begin = Clock::now();
    const Status status = join(rendezvous(here, 3, port)).status();
    CHECK(status.code() == Code::aborted);
    CHECK(status.detail().rank == here);
    CHECK(Clock::now() - begin < 5s);
    other.join();
  }
}
