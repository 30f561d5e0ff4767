#include "transport/tcp.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>

#include "bootstrap/socket.h"
#include "schedule/schedule.h"
#include "transport/mismatch.h"

namespace paceline {
namespace {

using Flow = TcpConnection::Flow;

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::connect(TcpListener listener, TcpGroup group, const Until& until) {
  auto sockets = connect_peers(std::move(listener), group, until);
  PACE_TRY(sockets.status());
  std::unique_ptr<TcpTransport> transport(new TcpTransport(std::move(group), std::move(*sockets)));
  PACE_TRY(transport->watch());
  return transport;
}

TcpTransport::TcpTransport(TcpGroup group, std::vector<PrivateDescriptor> sockets)
    : group_(std::move(group)),
      position_(static_cast<std::size_t>(group_.size), group_.peers.size()),
      lanes_(static_cast<std::size_t>(group_.channels)) {
  const int room = capacity(group_.size);
  for (std::size_t i = 0; i < group_.peers.size(); ++i) position_[static_cast<std::size_t>(group_.peers[i].rank)] = i;
  lines_.reserve(sockets.size());
  for (std::size_t i = 0; i < sockets.size(); ++i)
    lines_.push_back({TcpConnection(std::move(sockets[i]), room), i % group_.peers.size()});
  for (Lane& lane : lanes_) lane.unsent.resize(static_cast<std::size_t>(room));
  flushing_.reserve(lines_.size());
}

Status TcpTransport::watch() {
  watch_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!watch_.valid()) return descriptor_error("cannot make an epoll descriptor", errno);
  for (const Line& line : lines_) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    if (::epoll_ctl(watch_.get(), EPOLL_CTL_ADD, line.connection.fd(), &event) != 0)
      return Status::system("cannot watch a data connection", errno);
  }
  return {};
}

TcpTransport::~TcpTransport() {
  // Messages are still queued where a call has failed elsewhere: their data is the program's again.
  const auto only_asks = [](const Line* line) { return line->connection.only_asks(); };
  if (!failure_.ok() || !std::ranges::all_of(flushing_, only_asks)) return;
  // All at a time: who reads nothing on one line may read the others.
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  for (bool unconfirmed = true; unconfirmed && Clock::now() < deadline;) {
    unconfirmed = false;
    for (Line& line : lines_) {
      (void)line.connection.flush();
      unconfirmed |= line.connection.unconfirmed();
    }
    if (unconfirmed) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

TcpTransport::Line& TcpTransport::line(int channel, int rank) {
  return lines_[static_cast<std::size_t>(channel) * group_.peers.size() + position_[static_cast<std::size_t>(rank)]];
}

// ---- Sending ----

Attempt TcpTransport::send(int channel, std::span<const int> to, const Call& call, std::span<const std::byte> data,
                           bool, bool) {
  if (!failure_.ok()) return Attempt::failed;
  Lane& lane = lanes_[static_cast<std::size_t>(channel)];
  if (!is_collective(call)) {
    Line& one = line(channel, to.front());
    if (one.connection.full()) return Attempt::later;
    ++lane.pair_messages;
    ++lane.pair_unsent;
    return send_to(one, call, data, &lane.pair_unsent);
  }
  if (lane.accepted - sent_of_collectives(lane) == lane.unsent.size()) return Attempt::later;
  std::uint32_t& unsent = lane.unsent[lane.accepted++ % lane.unsent.size()];
  unsent = static_cast<std::uint32_t>(to.size());
  for (const int rank : to)
    if (send_to(line(channel, rank), call, data, &unsent) == Attempt::failed) return Attempt::failed;
  return Attempt::done;
}

Attempt TcpTransport::send_to(Line& line, const Call& call, std::span<const std::byte> data, std::uint32_t* unsent) {
  latest_ = call;
  note(call);
  line.connection.push({MessageKind::message, data.size(), call}, data.data(), unsent);
  // Behind other messages it waits for its turn in progress().
  if (!line.flushing && flush(line, call) == Attempt::failed) return Attempt::failed;
  return Attempt::done;
}

void TcpTransport::note(const Call& call) {
  if (is_collective(call)) collective_ = call.sequence;
}

std::uint64_t TcpTransport::sent_of_collectives(Lane& lane) {
  while (lane.sent < lane.accepted && lane.unsent[lane.sent % lane.unsent.size()] == 0) ++lane.sent;
  return lane.sent;
}

std::uint64_t TcpTransport::sent(int channel) {
  Lane& lane = lanes_[static_cast<std::size_t>(channel)];
  return sent_of_collectives(lane) + lane.pair_messages - lane.pair_unsent;
}

int TcpTransport::holder(int channel, std::span<const int> to, const Call& call, bool) {
  if (!to.empty() && !is_collective(call)) return line(channel, to.front()).connection.full() ? to.front() : -1;
  Lane& lane = lanes_[static_cast<std::size_t>(channel)];
  const std::uint32_t* const first =
      sent_of_collectives(lane) == lane.accepted ? &lane.pair_unsent : &lane.unsent[lane.sent % lane.unsent.size()];
  for (const TcpPeer& peer : group_.peers)
    if (line(channel, peer.rank).connection.holds(first)) return peer.rank;
  return -1;
}

Attempt TcpTransport::flush(Line& line, const Call& call) {
  const Flow flow = line.connection.flush();
  if (flow == Flow::closed) return lost(line, call);
  if (flow == Flow::later && !line.flushing) {
    line.flushing = true;
    flushing_.push_back(&line);
  }
  return flow == Flow::done ? Attempt::done : Attempt::later;
}

Attempt TcpTransport::progress() {
  if (!failure_.ok()) return Attempt::failed;
  for (std::size_t i = flushing_.size(); i-- > 0;) {
    Line& line = *flushing_[i];
    const Attempt attempt = flush(line, latest_);
    if (attempt == Attempt::failed) return attempt;
    if (attempt == Attempt::later) continue;
    line.flushing = false;
    flushing_[i] = flushing_.back();
    flushing_.pop_back();
  }
  return Attempt::done;
}

// ---- Receiving ----

Attempt TcpTransport::receive(int channel, int from, const Call& call, std::size_t bytes, std::byte* place,
                              const std::byte** data, bool) {
  if (!failure_.ok()) return Attempt::failed;
  Line& line = this->line(channel, from);
  MessageHeader header;
  note(call);
  Flow flow = line.connection.peek(&header, collective_);
  if (flow == Flow::done) {
    if (header.call != call) return mismatched(line, call, header.call);
    if (header.length != bytes)
      return fail({Code::internal, fmt::format("a message of rank {} ({}) in {} has {} bytes instead of {}", from,
                                               group_.peers[line.peer].host, describe(call), header.length, bytes)});
    flow = line.connection.take(place);
  }
  switch (flow) {
    case Flow::done: *data = place; return Attempt::done;
    case Flow::later:
    case Flow::more: return Attempt::later;
    case Flow::closed:
      return is_collective(call) && find_passed(from, call) == Attempt::failed ? Attempt::failed : lost(line, call);
    case Flow::malformed: return malformed(line);
  }
  return Attempt::failed;
}

void TcpTransport::sleep(double microseconds) {
  if (microseconds <= 0) return;
  epoll_event events[64];
  const auto seconds = static_cast<time_t>(microseconds / 1e6);
  const timespec time{seconds, static_cast<long>((microseconds - static_cast<double>(seconds) * 1e6) * 1e3)};
  // Before Linux 5.11 there is no such call, and sandboxes that do not know it forbid it.
  if (::epoll_pwait2(watch_.get(), events, 64, &time, nullptr) < 0 && (errno == ENOSYS || errno == EPERM))
    ::epoll_wait(watch_.get(), events, 64, static_cast<int>(std::ceil(microseconds / 1e3)));
}

// ---- Failing ----

Attempt TcpTransport::compare(int from, const Call& call, bool owed) {
  if (!failure_.ok()) return Attempt::failed;
  // Numbered by pairs, sends and receives do not compare.
  if (!is_collective(call)) return from >= 0 && owed ? find_overtaken(from, call) : Attempt::done;
  note(call);
  if (from >= 0)
    for (int channel = 0; channel < group_.channels; ++channel)
      if (announce(line(channel, from), call) == Attempt::failed) return Attempt::failed;
  // Any rank may be the one that finds out: the other call may have nothing to do with this rank.
  for (Line& line : lines_) {
    MessageHeader header;
    const Flow flow = line.connection.peek(&header, collective_);
    if (flow == Flow::malformed) return malformed(line);
    // A message that waits here and is of this call or an earlier one should have been received.
    if (flow == Flow::done && is_collective(header.call) && header.call != call &&
        !comes_before(call.sequence, header.call.sequence))
      return mismatched(line, call, header.call);
    const auto& theirs = line.connection.asked(collective_);
    if (asks_from_another(line, call)) return mismatched(line, call, *theirs);
    // Who asks from an earlier call, or for a pair's message, may lack one that will not come.
    const bool is_earlier = theirs && is_collective(*theirs) && comes_before(theirs->sequence, call.sequence);
    if ((line.connection.wants_answer() || is_earlier) && announce(line, call) == Attempt::failed)
      return Attempt::failed;
  }
  return from >= 0 && owed ? find_passed(from, call) : Attempt::done;
}

Status TcpTransport::untaken() {
  for (Line& line : lines_) {
    MessageHeader header;
    if (line.connection.peek(&header, collective_) == Flow::done)
      return left_untaken(group_.rank, group_.peers[line.peer].rank, header.call);
  }
  return {};
}

// Whether the other side's last inquiry is of another call of the same number.
bool TcpTransport::asks_from_another(Line& line, const Call& call) {
  const auto& theirs = line.connection.asked(collective_);
  return theirs && is_collective(*theirs) && is_collective(call) && theirs->sequence == call.sequence &&
         *theirs != call;
}

void TcpTransport::announce(const Call& call) {
  note(call);
  for (Line& line : lines_) (void)announce(line, call);  // a line that has failed ends the next call
  // Read what the others say of such calls: who makes no other call would leave it where it lies, until it fills the
  // connections. Not each time, which makes such a call up to 4 times as long.
  constexpr std::uint32_t apart = 1024;
  if (++announced_ % apart != 0) return;
  MessageHeader header;
  for (Line& line : lines_) (void)line.connection.peek(&header, collective_);
}

// Once a call, while the other side is there.
Attempt TcpTransport::announce(Line& line, const Call& call) {
  if (line.asked == call) return Attempt::done;
  // Nobody reads it there any more: a kernel that gets bytes for a connection that was closed resets it, and drops what
  // it has yet to deliver of the last messages.
  if (group_.has_left && group_.has_left(group_.peers[line.peer].rank)) return Attempt::done;
  line.asked = call;
  line.connection.inquire(call);
  return line.flushing ? Attempt::later : flush(line, call);
}

// A rank that waits in a later call, or has ended one, has ended this one, and what it sent for it came before its
// inquiries, on every channel: if nothing waits here, nothing comes. It may have left since.
Attempt TcpTransport::find_passed(int from, const Call& call) {
  for (int channel = 0; channel < group_.channels; ++channel) {
    Line& line = this->line(channel, from);
    MessageHeader header;
    const Flow flow = line.connection.peek(&header, collective_);
    if (flow != Flow::later && flow != Flow::closed) return Attempt::done;
    const auto& theirs = line.connection.asked(collective_);
    if (!theirs || !is_collective(*theirs) || !comes_before(call.sequence, theirs->sequence)) return Attempt::done;
  }
  Line& line = this->line(0, from);
  const TcpPeer& peer = group_.peers[line.peer];
  Status::Detail detail = passed_over(group_.rank, call, peer.rank, *line.connection.asked(collective_)).detail();
  detail.host = peer.host;
  return fail(Status(std::move(detail)));
}

// A receive of a pair waits, and `from` has called a collective before it sent. Where both go through one connection
// that is a mismatch, so it is one where the collective's message came through another. What `from` sent for a pair
// before may be on its way yet, but not behind an inquiry that it sent from that collective, or a later one: ask for
// one.
Attempt TcpTransport::find_overtaken(int from, const Call& call) {
  Line& line = this->line(0, from);  // of all pairs
  MessageHeader header;
  if (line.flushing || line.connection.peek(&header, collective_) != Flow::later) return Attempt::done;
  for (int channel = 1; channel < group_.channels; ++channel) {
    if (this->line(channel, from).connection.peek(&header, collective_) != Flow::done) continue;
    const auto& theirs = line.connection.asked(collective_);
    if (theirs && is_collective(*theirs) && !comes_before(theirs->sequence, header.call.sequence))
      return mismatched(line, call, header.call);
    return announce(line, call) == Attempt::failed ? Attempt::failed : Attempt::done;
  }
  return Attempt::done;
}

Attempt TcpTransport::fail(Status reason) {
  failure_ = std::move(reason);
  return Attempt::failed;
}

Attempt TcpTransport::lost(Line& line, const Call& call) {
  if (asks_from_another(line, call)) return mismatched(line, call, *line.connection.asked(collective_));
  const TcpPeer& peer = group_.peers[line.peer];
  Status::Detail detail;
  detail.code = Code::remote;
  detail.rank = peer.rank;
  detail.host = peer.host;
  detail.peer = group_.rank;
  detail.collective = title(call);
  detail.sequence = call.sequence;
  detail.system_errno = line.connection.error();
  detail.message = fmt::format("rank {} ({}) {} during {}{}{}", peer.rank, peer.host,
                               is_out_of_reach(detail.system_errno) ? "cannot be reached" : "closed its connection",
                               describe(call), detail.system_errno == 0 ? "" : ": ",
                               detail.system_errno == 0 ? "" : std::strerror(detail.system_errno));
  return fail(Status(std::move(detail)));
}

Attempt TcpTransport::malformed(const Line& line) {
  const TcpPeer& peer = group_.peers[line.peer];
  Status::Detail detail = line.connection.problem().detail();
  detail.rank = peer.rank;
  detail.host = peer.host;
  detail.peer = group_.rank;
  detail.message = fmt::format("from rank {} ({}): {}", peer.rank, peer.host, detail.message);
  return fail(Status(std::move(detail)));
}

Attempt TcpTransport::mismatched(const Line& line, const Call& mine, const Call& theirs) {
  const TcpPeer& peer = group_.peers[line.peer];
  Status::Detail detail = mismatch(group_.rank, mine, peer.rank, theirs).detail();
  detail.host = peer.host;
  return fail(Status(std::move(detail)));
}

}  // namespace paceline
