// A session: the ranks that came together at the rendezvous, and the control connections that remain between them.
//
// Every rank keeps one authenticated TCP connection to rank 0; one thread a process (the monitor) sleeps on them. What
// it is for, after the exchange of addresses:
//   - a connection that ends without a farewell means that its rank died: rank 0 tells everyone, within milliseconds;
//   - a failure or an abort on one rank is told to all;
//   - after a timeout rank 0 asks every rank for a sign of life, and the silent one, or the one furthest behind, is
//     named; where each waits for the next, the last (inquiry.h).
// Several communicators (the first and those split from it) share a session; each is a Membership.
//
// A forked child holds none of the connections. It may destroy its copies of the objects, without effect on the
// parent's; nothing else.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/call.h"
#include "base/private_descriptor.h"
#include "base/status.h"

namespace paceline {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

// What is known of each rank after the rendezvous.
struct Member {
  std::string host;  // host name, for messages
  std::string node;  // the same for two ranks only if they can share memory (boot id + IPC and mount namespaces + uid)
  std::string address;  // numeric address on which the rank can be reached, from its connection to rank 0
  std::int64_t pid = 0;
};

class Membership;

class Session {
 public:
  virtual ~Session() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const std::vector<Member>& members() const = 0;
  // The job's secret, for the handshake of the transports' own connections (handshake.h).
  [[nodiscard]] virtual const std::string& secret() const = 0;

  // All ranks give bytes (any length up to 1 MiB) and get everyone's, by rank. Collective over the session; ends at
  // the deadline with an error that names the ranks that did not come, and for all when `whose` (of this session;
  // nullptr: nobody's) is aborted. Time in which this process did not run, in exchanges so far, does not count.
  virtual Result<std::vector<Bytes>> exchange(std::span<const std::byte> mine, Clock::time_point deadline,
                                              const Membership* whose = nullptr) = 0;

  // A communicator of some of the session's ranks. `id` is the same on all of its ranks and used once a session;
  // ranks[i] is the session's rank of the communicator's rank i.
  virtual std::unique_ptr<Membership> enter(std::uint64_t id, std::vector<int> ranks, int my_rank) = 0;

  // How the session has lost a rank, to follow its name ("died"); none: it is there, as far as is known.
  [[nodiscard]] virtual std::optional<std::string> loss_of(int rank) const = 0;
};

// Which calls are under way: a collective, or sends and receives.
enum class Inside : std::uint8_t { nothing, collective, messages };

// What a rank of the communicator is doing now, for others to ask. Written by the calling thread, read by the monitor.
struct Activity {
  std::atomic<std::uint32_t> sequence{0};  // of the last collective entered; 0: none yet
  std::atomic<std::uint32_t> what{0};      // Call::what of the same
  std::atomic<Inside> inside{Inside::nothing};
  std::atomic<int> waiting_for{-1};  // the rank that a wait in it is for; -1: none, or the wait is short so far
};

// One communicator's part of a session. All ranks in it and in its messages are the communicator's.
class Membership {
 public:
  virtual ~Membership() = default;  // without leave(): as if this process had died, for this communicator

  Activity activity;

  // Whether the communicator has ended (one load; for waiting loops), and why. Set by a death, a report or an abort of
  // any rank.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }  // orders: failure() after it
  [[nodiscard]] virtual Status failure() const = 0;

  // End the communicator on every rank for this reason; the first reason stands. Returns the reason that stands, when
  // it is on its way to the others: the program may end because of it.
  // Code::remote of another rank means that a connection broke, which may only be the trace of a death: waits up to
  // 0.3 s for news of one before the reason given stands.
  virtual Status report(Status reason) = 0;
  // A wait for `waiting_for` in `call` has lasted `seconds`. Finds out who holds the call up, ends the communicator
  // with an error of Code::timeout that names that rank, and returns it. Blocks for 1.5 s at most.
  virtual Status timed_out(int waiting_for, const Call& call, double seconds) = 0;
  // Whether `rank` has left after its collective `sequence` (so that waiting for it in a later one is in vain).
  [[nodiscard]] virtual bool has_left(int rank, std::uint32_t* sequence) const = 0;
  // To be called once when the communicator ends, by whichever thread learns of it: it must not block, nor use the
  // membership. At once if it has ended already. One an owner; empty: none any more.
  virtual void when_failed(const void* owner, std::function<void(const Status& reason)> call) = 0;
  // The one to be called for each rank that has left, under the same rules: at once for those that have left already.
  virtual void when_left(std::function<void(int rank)> call) = 0;
  // Twice a second, on another thread, `look` may find a reason to end the communicator on every rank; none: no more.
  // Returns when no look is under way.
  virtual void look_by(std::function<Status()> look) = 0;
  // Part in peace: others learn that this rank completed everything up to activity.sequence. Never blocks long. False:
  // the communicator has ended, or is another process's, whose child this one is.
  virtual bool leave() = 0;

 protected:
  std::atomic<bool> failed_{false};
};

// How to join.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string address;  // numeric IPv4/IPv6 address or host name of rank 0; rank 0 listens on it and on no other
  int port = 0;
  PrivateDescriptor listener;  // rank 0 only: a socket that listens there already; else it opens one
  std::string secret;          // authenticates every connection
  double timeout = 60;         // seconds, for the whole of the joining
  // Seconds after which an address that nobody listens on is given up; none: the timeout. Somebody listens before there
  // is a unique id, so nobody there means that the process that made it has ended, or is on another machine.
  std::optional<double> silence_timeout;
  // Where other ranks may meet at the same place before: what it means that for some seconds the secret has not
  // matched. Empty: an error at once, of the job's secret.
  std::string other_meeting;
  // Why ranks that are missing will not come, or it is in vain for another reason; asked about twice a second, by ranks
  // other than 0 about all others until they have met it. Empty: nobody would know.
  std::function<Status(const std::vector<int>& missing)> why_not;
  std::shared_ptr<void> held;  // what is needed until the joining has ended, for example the file with the address
};

// Meet the other ranks. Errors: timeout naming the ranks that did not come, "rank 1 is claimed twice: by pid .. on ..
// and pid .. on ..", a wrong secret, another version or size.
Result<std::shared_ptr<Session>> join(Rendezvous where);

// A session of one rank, without any connection.
std::shared_ptr<Session> alone();

}  // namespace paceline
