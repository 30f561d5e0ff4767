#include "transport/tcp_mesh.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <new>

#include "bootstrap/socket.h"
#include "comm/scarce_memory.h"
#include "transport/child.h"
#include "transport/tcp_ranks.h"

namespace paceline {
namespace {

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// The mask of this process's thread of that name, as /proc shows it; empty: there is none.
std::string signals_blocked_in(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool is_it = false;
    for (std::string key, value; status >> key && std::getline(status >> std::ws, value);) {
      if (key == "Name:") is_it = value == thread;
      if (key == "SigBlk:" && is_it) return value;
    }
  }
  return "";
}

std::vector<PrivateDescriptor> silent_connections(int port, int count) {
  std::vector<PrivateDescriptor> connections;
  for (int i = 0; i < count; ++i) {
    auto fd = connect_to("127.0.0.1", port, seconds_from_now(10));
    REQUIRE(fd.ok());
    connections.push_back(std::move(*fd));
  }
  return connections;
}

// Connect all, and find everyone at the right end: each rank tells each other one who it is.
void check_mesh(TcpRanks& job) {
  job.each([&](int rank) {
    auto transport = job.connect(rank);
    CHECK_MESSAGE(transport.ok(), transport.status().message());
    if (!transport.ok()) return;
    const Call call = make_call(Collective::all_gather, DataType::int8, Operation::sum, 0, 1, 1);
    for (int channel = 0; channel < job.groups[0].channels; ++channel) {
      const std::vector<std::byte> mine{static_cast<std::byte>(10 * channel + rank)};
      for (const TcpPeer& peer : job.groups[static_cast<std::size_t>(rank)].peers)
        CHECK(give(**transport, channel, {peer.rank}, call, mine) == Attempt::done);
    }
    for (int channel = 0; channel < job.groups[0].channels; ++channel) {
      for (const TcpPeer& peer : job.groups[static_cast<std::size_t>(rank)].peers) {
        std::vector<std::byte> theirs(1);
        CHECK(take(**transport, channel, peer.rank, call, theirs) == Attempt::done);
        CHECK(theirs[0] == static_cast<std::byte>(10 * channel + peer.rank));
      }
    }
  });
}

}  // namespace

TEST_CASE("tcp: a lack of memory while a rank connects is an error on it, and the others end, too") {
  for (long nth = 1, spared = 0; spared == 0; ++nth) {
    TcpRanks job(2);
    job.each([&](int rank) {
      if (rank == 1) testing::fail_allocation(nth);
      Status status;
      try {
        status = job.connect(rank, 5).status();
      } catch (const std::bad_alloc&) {
        status = Status(Code::system, "before there was a thread, or after");
      }
      if (rank == 1 && testing::spare_allocation()) spared = nth;
      if (rank == 1) CHECK(status.ok() == (spared != 0));
    });
  }
}

TEST_CASE("tcp mesh: every pair is connected on every channel, and nothing stays open afterwards") {
  const std::size_t before = open_descriptors();
  for (const int ranks : {1, 2, 3, 5}) {
    for (const int channels : {1, 4}) {
      TcpRanks job(ranks, channels);
      check_mesh(job);
    }
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("tcp mesh: connections that are not of this communicator do not disturb it") {
  TcpRanks job(3, 2);
  const int port = job.listeners[2].port();
  std::vector<PrivateDescriptor> intruders;
  for (int i = 0; i < 20; ++i) {
    auto fd = connect_to("127.0.0.1", port, seconds_from_now(10));
    REQUIRE(fd.ok());
    if (i % 2 == 0) {  // the others say nothing
      const auto junk = pattern(static_cast<std::size_t>(i) * 40, 3);
      CHECK(send_all(fd->get(), junk, seconds_from_now(10)).ok());
    }
    intruders.push_back(std::move(*fd));
  }
  // Those with the secret but another purpose, one by one: kind, group, rank, channel.
  std::vector<std::thread> strangers;
  for (const Hello& hello :
       {Hello{control_connection, 0, 0, 77}, Hello{data_connection, 0, 0, 78}, Hello{data_connection, 2, 0, 77},
        Hello{data_connection, 9, 0, 77}, Hello{data_connection, 0, 2, 77}})
    strangers.emplace_back([hello, port] {
      auto fd = connect_to("127.0.0.1", port, seconds_from_now(10));
      if (fd.ok()) (void)introduce(fd->get(), "a secret", hello, seconds_from_now(10));
    });
  check_mesh(job);
  for (auto& stranger : strangers) stranger.join();
}

TEST_CASE("tcp mesh: a rank that came before a crowd of silent connections keeps its place") {
  TcpRanks job(2);
  const int port = job.listeners[1].port();
  std::thread rank_0(
      [&] { CHECK(connect_peers(std::move(job.listeners[0]), job.groups[0], seconds_from_now(20)).ok()); });
  CHECK(wait_for(job.listeners[1].fd(), POLLIN, seconds_from_now(20)).ok());
  const auto crowd = silent_connections(port, 100);
  CHECK(connect_peers(std::move(job.listeners[1]), job.groups[1], seconds_from_now(20)).ok());
  rank_0.join();
}

TEST_CASE("tcp mesh: a crowd of silent connections makes way for a rank that comes after it") {
  TcpRanks job(2);
  const auto crowd = silent_connections(job.listeners[1].port(), 150);
  check_mesh(job);
}

TEST_CASE("tcp mesh: a rank whose connection is dropped comes again") {
  TcpRanks job(2);
  std::thread rank_0(
      [&] { CHECK(connect_peers(std::move(job.listeners[0]), job.groups[0], seconds_from_now(20)).ok()); });
  CHECK(wait_for(job.listeners[1].fd(), POLLIN, seconds_from_now(20)).ok());
  CHECK(accept_from(job.listeners[1].fd())->valid());  // and is closed
  CHECK(connect_peers(std::move(job.listeners[1]), job.groups[1], seconds_from_now(20)).ok());
  rank_0.join();
}

TEST_CASE("tcp mesh: silent connections that take the last descriptors make way") {
  TcpRanks job(2);
  const auto crowd = silent_connections(job.listeners[1].port(), 5);
  const std::size_t before = open_descriptors();
  std::thread rank_0(
      [&] { CHECK(connect_peers(std::move(job.listeners[0]), job.groups[0], seconds_from_now(20)).ok()); });
  // Its socket and two event descriptors; what it opens for a moment may count, too.
  int looks = 0;
  for (const auto deadline = seconds_from_now(20); looks < 20 && Clock::now() < deadline;) {
    looks = open_descriptors() < before + 3 ? 0 : looks + 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  rlimit tight = old;
  { tight.rlim_cur = static_cast<rlim_t>(FileDescriptor(::dup(0)).get()) + 6; }  // room for four of those that wait
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const auto sockets = connect_peers(std::move(job.listeners[1]), job.groups[1], seconds_from_now(20));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  CHECK_MESSAGE(sockets.ok(), sockets.status().message());
  rank_0.join();
}

TEST_CASE("tcp mesh: silent connections that take the descriptors for connecting make way") {
  TcpRanks job(2, 2);
  Pipe told, go_on;
  Child rank_1([&] {
    auto own = TcpListener::open("127.0.0.1");  // a forked child does not get its parent's
    int one = 0;
    return own.ok() && told.put(own->port()) && go_on.get(&one) &&
           connect_peers(std::move(*own), job.groups[1], seconds_from_now(20)).ok();
  });
  REQUIRE(told.get(&job.groups[0].peers[0].port));
  const auto crowd = silent_connections(job.listeners[0].port(), 100);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  rlimit tight = old;
  // Room for two event descriptors, one connection and four of those that wait.
  const int last = FileDescriptor(::dup(0)).get() + 6;
  tight.rlim_cur = static_cast<rlim_t>(last) + 1;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  std::thread rank_0([&] {
    const auto sockets = connect_peers(std::move(job.listeners[0]), job.groups[0], seconds_from_now(20));
    CHECK_MESSAGE(sockets.ok(), sockets.status().message());
  });
  for (const auto deadline = seconds_from_now(20); ::fcntl(last, F_GETFD) < 0 && Clock::now() < deadline;)
    std::this_thread::yield();
  CHECK(go_on.put(1));
  rank_0.join();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  CHECK(rank_1.ended_well());
}

TEST_CASE("tcp mesh: of several connections of a rank the one that it opened last stands, whichever is heard last") {
  TcpRanks job(2, 2);
  std::thread rank_1([&] {
    auto transport = job.connect(1, 5);
    CHECK_MESSAGE(transport.ok(), transport.status().message());
    std::vector<std::byte> data(1);
    if (transport.ok()) CHECK(take(**transport, 0, 0, sum_of(1), data) == Attempt::done);
  });
  const auto port = job.listeners[1].port();
  auto late = connect_to("127.0.0.1", port, seconds_from_now(5));
  auto given_up = connect_to("127.0.0.1", port, seconds_from_now(5));
  auto last = connect_to("127.0.0.1", port, seconds_from_now(5));
  auto other_channel = connect_to("127.0.0.1", port, seconds_from_now(5));
  REQUIRE((late.ok() && given_up.ok() && last.ok() && other_channel.ok()));
  const auto of_channel = [](Result<PrivateDescriptor>& connection, std::uint32_t channel) {
    return introduce(connection->get(), "a secret", {data_connection, 0, channel, 77}, seconds_from_now(5)).ok();
  };
  CHECK(of_channel(given_up, 0));
  given_up->reset();
  CHECK(of_channel(last, 0));
  CHECK(of_channel(late, 0));
  CHECK(of_channel(other_channel, 1));
  const auto header = encode({MessageKind::message, 1, sum_of(1)});
  CHECK(send_all(last->get(), header, seconds_from_now(5)).ok());
  CHECK(send_all(last->get(), std::vector{std::byte{7}}, seconds_from_now(5)).ok());
  rank_1.join();
}

TEST_CASE("tcp mesh: a rank that never comes is named at the deadline") {
  TcpRanks job(3);
  const auto begin = Clock::now();
  auto transport = job.connect(2, 0.2);
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
  REQUIRE(!transport.ok());
  CHECK(transport.status().code() == Code::timeout);
  CHECK(transport.status().detail().rank == 0);
  CHECK(transport.status().message() ==
        "rank 0 (node-a), rank 1 (node-b) did not open all data connections to rank 2 (node-c) in time");
}

TEST_CASE("tcp mesh: who waits for connections ends when they are given up") {
  TcpRanks job(3);
  const FileDescriptor given_up(::eventfd(1, EFD_CLOEXEC));
  const auto begin = Clock::now();
  // The first waits for the answers of ranks that listen, the last for ranks that do not come.
  for (const std::size_t rank : {0, 2}) {
    auto sockets =
        connect_peers(std::move(job.listeners[rank]), job.groups[rank], Until(seconds_from_now(60), given_up.get()));
    REQUIRE(!sockets.ok());
    CHECK(sockets.status().code() == Code::aborted);
  }
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("tcp mesh: the thread that connects takes no signals of the program's") {
  TcpRanks job(2);
  const FileDescriptor given_up(::eventfd(0, EFD_CLOEXEC));
  std::thread rank_0([&] {
    CHECK(!connect_peers(std::move(job.listeners[0]), job.groups[0], Until(seconds_from_now(20), given_up.get())).ok());
  });
  CHECK(wait_for(job.listeners[1].fd(), POLLIN, seconds_from_now(5)).ok());  // it is at work
  std::string blocked;
  for (const auto deadline = seconds_from_now(5); blocked.empty() && Clock::now() < deadline;)
    blocked = signals_blocked_in("pace-connecting");
  // All but SIGKILL and SIGSTOP, and the two of the C library.
  CHECK(blocked == "fffffffe7ffbfeff");
  ::eventfd_write(given_up.get(), 1);
  rank_0.join();
}

TEST_CASE("tcp mesh: a rank whose listener is gone is named at once") {
  TcpRanks job(2);
  { const TcpListener gone = std::move(job.listeners[1]); }
  const auto begin = Clock::now();
  auto transport = job.connect(0, 60);
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
  REQUIRE(!transport.ok());
  CHECK(transport.status().code() == Code::remote);
  CHECK(transport.status().detail().system_errno == ECONNREFUSED);
  CHECK(transport.status().detail().rank == 1);
  CHECK(transport.status().message().starts_with("no data connection to rank 1 (node-b): "));
}

TEST_CASE("tcp mesh: another secret is refused on both sides") {
  TcpRanks job(2);
  job.groups[0].secret = "another secret";
  job.each([&](int rank) {
    auto transport = job.connect(rank, 3);
    CHECK(!transport.ok());
    CHECK(transport.status().message().find("secret") != std::string::npos);
  });
}

TEST_CASE("tcp mesh: too few file descriptors is an error that says how many are needed") {
  TcpRanks job(2, 4);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  rlimit tight = old;
  { tight.rlim_cur = static_cast<rlim_t>(FileDescriptor(::dup(0)).get()) + 2; }  // room for two more
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  auto transport = job.connect(0, 5);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  REQUIRE(!transport.ok());
  CHECK(transport.status().detail().system_errno == EMFILE);
  CHECK(transport.status().detail().rank == 0);  // the fault of the rank that asks, not of the one it wanted to reach
  CHECK(transport.status().message().find("needs 4 connections") != std::string::npos);
}

TEST_CASE("tcp listener: it never listens on all interfaces") {
  for (const char* address : {"0.0.0.0", "::"}) {
    auto listener = TcpListener::open(address);
    REQUIRE(!listener.ok());
    CHECK(listener.status().code() == Code::invalid_argument);
  }
  auto listener = TcpListener::open("127.0.0.2");
  REQUIRE(listener.ok());
  CHECK(describe(local_address(listener->fd())) == "127.0.0.2:" + std::to_string(listener->port()));
}

}  // namespace paceline
