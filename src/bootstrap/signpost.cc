#include "bootstrap/signpost.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/configuration.h"
#include "base/fork_hold.h"
#include "base/signals_blocked.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interface.h"
#include "bootstrap/member.h"
#include "bootstrap/socket.h"
#include "bootstrap/strangers.h"

namespace paceline {
namespace {

constexpr std::size_t most_strangers = 256;
constexpr auto parting_time = std::chrono::milliseconds(300);
constexpr auto crowded_pause = std::chrono::milliseconds(100);
constexpr auto asking_time = std::chrono::seconds(2);  // for a forked child's word to its parent
// Longest that a rank which has been shown the way takes to come there.
constexpr auto way_time = std::chrono::seconds(5);

// Guards every signpost's stage.
std::mutex mutex;
const HeldWhileForking<mutex> held_while_forking;

bool is_readable(int fd, int milliseconds) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, milliseconds) > 0;
}

// A connection on which rank 0 speaks to the signpost.
Result<PrivateDescriptor> speak_to_signpost(const Rendezvous& where, int rank_0_port, const Until& until) {
  Result<PrivateDescriptor> fd = connect_to(where.address, rank_0_port, until);
  PACE_TRY(fd.status());
  PACE_TRY(introduce(fd->get(), where.secret, Hello{rank_0_connection, 0, 0, 0}, until));
  return fd;
}

// On the interface that was chosen, or where this process reaches the signpost's.
Result<std::string> own_address(int fd) {
  const std::string& choice = configuration().interface;
  return choice.empty() ? host_of(local_address(fd)) : interface_address(choice);
}

}  // namespace

Signpost::Signpost(FileDescriptor listener, FileDescriptor announcements, FileDescriptor wake, std::string secret)
    : secret_(std::move(secret)),
      port_(port_of(local_address(listener.get()))),
      rank_0_port_(port_of(local_address(announcements.get()))),
      listener_(std::move(listener)),
      announcements_(std::move(announcements)),
      wake_(std::move(wake)) {}

Result<std::shared_ptr<Signpost>> Signpost::put_up(const std::string& address, std::string secret) {
  Result<FileDescriptor> listener = listen_at(address, 0);
  PACE_TRY(listener.status());
  Result<FileDescriptor> announcements = listen_at(address, 0);
  PACE_TRY(announcements.status());
  FileDescriptor wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return descriptor_error("cannot make an event descriptor", errno);
  std::shared_ptr<Signpost> made(
      new Signpost(std::move(*listener), std::move(*announcements), std::move(wake), std::move(secret)));
  try {
    const SignalsBlocked blocked;
    std::thread thread([made] { made->run(); });
    ::pthread_setname_np(thread.native_handle(), "pace-signpost");
    thread.detach();  // it may wait as long as the process lives
  } catch (const std::system_error& error) {
    return Status::system("cannot start the unique id's thread", error.code().value());
  }
  return made;
}

FileDescriptor Signpost::take_down() {
  std::unique_lock lock(mutex);
  if (stage_ != Stage::waiting) return {};
  if (is_inherited()) return std::move(listener_);  // the parent's thread has no part in this copy
  stage_ = Stage::taken;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  ended_.wait(lock, [this] { return stage_ == Stage::over; });
  return std::move(listener_);
}

// Whether it was not taken down before.
bool Signpost::enter(Stage next) {
  const std::lock_guard lock(mutex);
  if (next == Stage::showing && stage_ == Stage::taken) return false;
  if (next == Stage::over && stage_ != Stage::taken) listener_.reset();
  stage_ = next;
  if (next == Stage::over) ended_.notify_all();
  return true;
}

void Signpost::run() try {
  const std::optional<Place> place = wait_for_rank_0();
  if (place && place->port != 0) show_the_way(*place);
  rank_0_.close();
  announcements_.reset();
  enter(Stage::over);
} catch (const std::bad_alloc&) {
  enter(Stage::over);
}

// None: it is taken down.
std::optional<Place> Signpost::wait_for_rank_0() {
  Strangers strangers(announcements_.get(), secret_, most_strangers);
  std::list<ControlConnection> callers;
  for (;;) {
    std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
    for (const ControlConnection& caller : callers) entries.push_back({caller.fd(), POLLIN, 0});
    strangers.add_to(entries);
    const int longest = strangers.empty() ? -1 : milliseconds_until(strangers.next_end(Clock::time_point::max()));
    (void)::poll(entries.data(), entries.size(), longest);
    if (entries[0].revents != 0) return std::nullopt;

    std::size_t position = 0;
    for (auto caller = callers.begin(); caller != callers.end();) {
      std::vector<ControlMessage> messages;
      const Status status = entries[++position].revents == 0 ? Status() : caller->receive(messages);
      const auto* place = messages.empty() ? nullptr : std::get_if<Place>(&messages.front());
      if (place != nullptr && enter(Stage::showing)) {
        rank_0_ = std::move(*caller);
        return *place;
      }
      caller = status.ok() && messages.empty() ? std::next(caller) : callers.erase(caller);
    }
    const Status served = strangers.serve(
        entries,
        [&](const Hello& hello, PrivateDescriptor socket, std::uint64_t) {
          if (hello.kind == rank_0_connection) callers.emplace_back(std::move(socket));
        },
        [](const Status&, bool) {});
    if (!served.ok() && is_readable(wake_.get(), static_cast<int>(crowded_pause.count()))) return std::nullopt;
  }
}

// As long as rank 0 has not met all, or has not given it up.
void Signpost::show_the_way(const Place& to) {
  const Frame frame = make_frame(to);
  Strangers strangers(listener_.get(), secret_, most_strangers);
  std::list<ControlConnection> told;
  for (;;) {
    std::vector<pollfd> entries = {{rank_0_.fd(), POLLIN, 0}};
    for (const ControlConnection& one : told) entries.push_back({one.fd(), POLLIN, 0});
    strangers.add_to(entries);
    const int longest = strangers.empty() ? -1 : milliseconds_until(strangers.next_end(Clock::time_point::max()));
    (void)::poll(entries.data(), entries.size(), longest);

    std::vector<ControlMessage> messages;
    if (entries[0].revents != 0 && !rank_0_.receive(messages).ok()) break;
    std::size_t position = 0;
    std::erase_if(
        told, [&](ControlConnection& one) { return entries[++position].revents != 0 && !one.receive(messages).ok(); });
    const Status served = strangers.serve(
        entries,
        [&](const Hello& hello, PrivateDescriptor socket, std::uint64_t) {
          if (hello.kind != control_connection) return;
          ControlConnection& one = told.emplace_back(std::move(socket));
          one.queue(frame);
          one.flush();
          one.finish();
        },
        [](const Status&, bool) {});
    if (!served.ok()) (void)is_readable(rank_0_.fd(), static_cast<int>(crowded_pause.count()));
  }
  std::vector<ControlConnection*> open;
  for (ControlConnection& one : told) open.push_back(&one);
  drain(std::move(open), Clock::now() + parting_time);
}

Status gather_elsewhere(Rendezvous& where, int rank_0_port) {
  const double seconds = std::min(where.timeout, where.silence_timeout.value_or(where.timeout));
  const Until until(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  Result<PrivateDescriptor> fd = speak_to_signpost(where, rank_0_port, until);
  if (!fd.ok())
    return Status(Code::invalid_usage,
                  fmt::format("nobody answers where the unique id was made ({} port {}): it has been used, since every "
                              "communicator needs a new one, or the process that made it has ended, which must run "
                              "until all ranks have joined ({})",
                              where.address, rank_0_port, fd.status().message()));
  Result<std::string> address = own_address(fd->get());
  PACE_TRY(address.status());
  Result<FileDescriptor> listener = listen_at(*address, 0);
  PACE_TRY(listener.status());
  where.address = *address;
  where.port = port_of(local_address(listener->get()));
  where.listener = PrivateDescriptor(std::move(*listener));

  auto connection = std::make_shared<ControlConnection>(std::move(*fd));
  connection->queue(make_frame(Place{where.address, static_cast<std::uint32_t>(where.port)}));
  connection->flush();  // into an empty socket: at once
  where.why_not = [connection, gone_since = std::optional<Clock::time_point>()](const std::vector<int>&) mutable {
    std::vector<ControlMessage> none;
    if (!gone_since && !connection->receive(none).ok()) gone_since = Clock::now();
    if (!gone_since || Clock::now() - *gone_since < way_time) return Status();
    return own_error(
        0, Status(Code::invalid_usage, "the process that made the unique id has ended before all ranks have joined"));
  };
  return {};
}

void gather_in_its_place(const Rendezvous& where, int rank_0_port) {
  const Until until(Clock::now() + asking_time);
  Result<PrivateDescriptor> fd = speak_to_signpost(where, rank_0_port, until);
  if (!fd.ok()) return;
  ControlConnection connection(std::move(*fd));
  connection.queue(make_frame(Place{}));
  connection.flush();
}

}  // namespace paceline
