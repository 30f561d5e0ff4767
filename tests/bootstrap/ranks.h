// Ranks for tests: as threads of this process, or as children that can be killed.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/interrupted.h"
#include "bootstrap/session.h"
#include "bootstrap/socket.h"

namespace paceline::testing {

using namespace std::chrono_literals;

inline Clock::time_point in(Clock::duration time) { return Clock::now() + time; }

// A port of loopback that nobody listens on now.
inline int free_port() { return port_of(local_address(listen_at("127.0.0.1", 0)->get())); }

inline Rendezvous rendezvous(int rank, int size, int port, double timeout = 20) {
  Rendezvous where;
  where.rank = rank;
  where.size = size;
  where.address = "127.0.0.1";
  where.port = port;
  where.secret = "a secret";
  where.timeout = timeout;
  return where;
}

// While it lives the program wants waits of the process's first thread to end, from the third question on; there is no
// signal.
class Interrupted {
 public:
  Interrupted() {
    static int questions;
    questions = 0;
    ask_when_waiting([] { return ++questions > 2 ? 1 : 0; });
  }
  ~Interrupted() { ask_when_waiting(nullptr); }
  Interrupted(const Interrupted&) = delete;
  Interrupted& operator=(const Interrupted&) = delete;
};

// Runs function(rank) for each rank in a thread of its own, and gives what they return.
template <class Function>
auto in_threads(int ranks, Function function) {
  std::vector<std::optional<decltype(function(0))>> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { results[static_cast<std::size_t>(rank)].emplace(function(rank)); });
  for (std::thread& thread : threads) thread.join();
  std::vector<decltype(function(0))> values;
  for (auto& result : results) values.push_back(std::move(*result));
  return values;
}

inline std::vector<std::shared_ptr<Session>> join_all(int size) {
  const int port = free_port();
  const auto results = in_threads(size, [&](int rank) { return join(rendezvous(rank, size, port)); });
  std::vector<std::shared_ptr<Session>> sessions;
  for (const auto& result : results) {
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    sessions.push_back(*result);
  }
  return sessions;
}

inline Bytes bytes(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

inline std::vector<int> first(int ranks) {
  std::vector<int> list;
  for (int rank = 0; rank < ranks; ++rank) list.push_back(rank);
  return list;
}

using Memberships = std::vector<std::unique_ptr<Membership>>;

inline Memberships enter_all(const std::vector<std::shared_ptr<Session>>& sessions, std::uint64_t id = 1) {
  Memberships memberships;
  for (const auto& session : sessions)
    memberships.push_back(session->enter(id, first(session->size()), session->rank()));
  return memberships;
}

inline const Call all_reduce_812 = make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, 1024, 812);

// Waits for `rank` in all-reduce #812 and times out, unless the communicator ends before.
inline Status wait_in_vain(Membership& membership, int rank) {
  membership.activity.sequence = 812;
  membership.activity.inside = Inside::collective;
  return membership.timed_out(rank, all_reduce_812, 5);
}

// A forked process that runs `body`, whose text comes back through a pipe. Make it before any thread.
class Child {
 public:
  using Say = std::function<void(const std::string& line)>;

  explicit Child(const std::function<void(const Say&)>& body) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      body([&](const std::string& line) {
        const std::string text = line + "\n";
        if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(2);
      });
      ::_exit(0);
    }
    ::close(ends[1]);
    output_ = FileDescriptor(ends[0]);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}
  ~Child() {
    if (pid_ > 0) kill(SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] int pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  // Waits until all its threads are stopped. False: it has ended.
  [[nodiscard]] bool await_stop() const {
    siginfo_t how;
    return ::waitid(P_PID, static_cast<id_t>(pid_), &how, WSTOPPED | WNOWAIT) == 0;
  }
  // The next line that the child said; empty at its end or after 10 s.
  std::string line() {
    std::string text;
    for (const auto deadline = in(10s);;) {
      std::byte byte{};
      if (!wait_for(output_.get(), POLLIN, deadline).ok() || ::read(output_.get(), &byte, 1) != 1) return text;
      if (byte == std::byte{'\n'}) return text;
      text += static_cast<char>(byte);
    }
  }

 private:
  ::pid_t pid_ = -1;
  FileDescriptor output_;
};

// Holds children up until it is opened, to so many of them.
class Gate {
 public:
  Gate() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    waits_ = FileDescriptor(ends[0]);
    gives_ = FileDescriptor(ends[1]);
  }
  // In a child, which is killed when its test ends.
  void await() const {
    char one = 0;
    if (::read(waits_.get(), &one, 1) != 1) ::_exit(3);
  }
  void open(int children) const {
    for (; children > 0; --children) REQUIRE(::write(gives_.get(), "!", 1) == 1);
  }

 private:
  FileDescriptor waits_;
  FileDescriptor gives_;
};

// `size` ranks as children; each joins, enters communicator 1 of all and says "ready" before `body`.
class Children {
 public:
  using Body = std::function<void(Session&, Membership&, const Child::Say&)>;

  Children(int size, const Body& body) {
    const int port = free_port();
    for (int rank = 0; rank < size; ++rank)
      children_.emplace_back([&](const Child::Say& say) {
        const auto session = join(rendezvous(rank, size, port));
        if (!session.ok()) return say(session.status().message());
        std::vector<int> all;
        for (int other = 0; other < size; ++other) all.push_back(other);
        const auto membership = (*session)->enter(1, all, rank);
        say("ready");
        body(**session, *membership, say);
      });
    for (Child& child : children_) REQUIRE(child.line() == "ready");
  }
  Child& operator[](int rank) { return children_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<Child> children_;
};

// Whether the membership ends within `time`.
inline bool ends_within(const Membership& membership, Clock::duration time) {
  for (const auto deadline = in(time); Clock::now() < deadline; std::this_thread::sleep_for(1ms))
    if (membership.failed()) return true;
  return membership.failed();
}

}  // namespace paceline::testing
