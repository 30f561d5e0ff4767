#include "bootstrap/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/interrupted.h"
#include "bootstrap/deadline.h"
#include "bootstrap/handshake.h"
#include "bootstrap/member.h"
#include "bootstrap/socket.h"

namespace paceline {
namespace {

constexpr auto first_pause = std::chrono::milliseconds(5);
constexpr auto longest_pause = std::chrono::milliseconds(250);
constexpr auto parting_time = std::chrono::milliseconds(200);
constexpr auto longest_silence = 4 * sign_of_life;  // of rank 0, after which it is the one that is missing

Status unreachable(const Rendezvous& where, double seconds, const Status& last) {
  Status::Detail detail = last.detail();
  detail.code = Code::timeout;
  detail.rank = 0;
  detail.message =
      fmt::format("rank 0 did not come to the rendezvous at {} port {} within {:g} s (the last attempt: {})",
                  where.address, where.port, seconds, detail.message);
  return Status(std::move(detail));
}

Status meets_others(const Rendezvous& where) {
  Status::Detail detail;
  detail.code = Code::invalid_usage;
  detail.rank = 0;
  detail.message = where.other_meeting;
  return Status(std::move(detail));
}

// The wait of one rank for the news that all have come.
class Waiting {
 public:
  Waiting(const Rendezvous& where, PrivateDescriptor fd)
      : where_(where), rank_0_(host_of(peer_address(fd.get()))), present_(static_cast<std::size_t>(where.size), false) {
    assembly_.members.resize(present_.size());
    assembly_.connections.emplace_back(std::move(fd));
  }

  // Ends when all have come, or this rank has been sent elsewhere().
  Status until(const Until& until, Member self) {
    connection().queue(make_frame(Join{static_cast<std::uint32_t>(where_.size), std::move(self)}));
    while (missing() > 0 && !elsewhere_) {
      connection().flush();
      const Status waited = wait_for(connection().fd(), connection().events(), until);
      if (!waited.ok())
        return give_up(waited.code() == Code::timeout ? why_in_vain() : own_error(where_.rank, waited).detail());
      std::vector<ControlMessage> messages;
      const Status status = connection().receive(messages);
      if (!messages.empty()) heard_ = Clock::now();
      for (ControlMessage& message : messages) PACE_TRY(take(message));
      if (!status.ok() && missing() > 0 && !elsewhere_) return rank_0_left(status);
    }
    assembly_.members[0].address = rank_0_;  // as seen from here, which is where it is used
    return {};
  }
  [[nodiscard]] const std::optional<GatheringPlace>& elsewhere() const { return elsewhere_; }
  Assembly take_assembly() { return std::move(assembly_); }

 private:
  ControlConnection& connection() { return assembly_.connections.front(); }
  [[nodiscard]] std::ptrdiff_t missing() const { return std::count(present_.begin(), present_.end(), false); }

  Status take(ControlMessage& message) {
    if (const auto* refusal = std::get_if<Refusal>(&message)) return Status(refusal->reason);
    if (const auto* place = std::get_if<GatheringPlace>(&message)) {
      elsewhere_ = GatheringPlace{seen_from_here(place->address), place->port};
      return {};
    }
    const auto* arrival = std::get_if<Arrival>(&message);
    if (arrival != nullptr && arrival->rank < present_.size()) {
      assembly_.members[arrival->rank] = arrival->member;
      assembly_.members[arrival->rank].address = seen_from_here(arrival->member.address);
      present_[arrival->rank] = true;
    } else {
      assembly_.early.emplace_back(0, std::move(message));
    }
    return {};
  }

  // A link-local address names the interface besides, which on each node is called as it likes: here it is the one on
  // which rank 0 is, or who has sent this rank on.
  [[nodiscard]] std::string seen_from_here(const std::string& address) const {
    const std::size_t zone = address.find('%'), own_zone = rank_0_.find('%');
    if (zone == address.npos) return address;
    return own_zone == rank_0_.npos ? address : address.substr(0, zone) + rank_0_.substr(own_zone);
  }

  static Status rank_0_left(const Status& status) {
    Status::Detail detail = status.detail();
    detail.rank = 0;
    detail.message = "rank 0 left the rendezvous: " + detail.message;
    return Status(std::move(detail));
  }

  // Only rank 0 tells who has come: if it is silent, nothing is known of the others.
  [[nodiscard]] Status::Detail why_in_vain() const {
    const Clock::duration silent = Clock::now() - heard_;
    if (silent > longest_silence) {
      Status::Detail detail;
      detail.code = Code::timeout;
      detail.rank = 0;
      detail.host = assembly_.members[0].host;
      detail.message = fmt::format(
          "{} has not been heard of for {:.1f} s during the rendezvous: its process is "
          "stopped or its node unreachable",
          present_[0] ? named(0, assembly_.members[0]) : "rank 0", std::chrono::duration<double>(silent).count());
      return detail;
    }
    std::vector<int> missing;
    for (std::size_t rank = 0; rank < present_.size(); ++rank)
      if (!present_[rank]) missing.push_back(static_cast<int>(rank));
    return absence(missing, "the rendezvous", where_.timeout);
  }

  // Without this rank nobody can start: rank 0 tells all why.
  Status give_up(const Status::Detail& reason) {
    connection().queue(make_frame(Refusal{reason}));
    connection().flush();
    connection().finish();
    drain({&connection()}, Clock::now() + parting_time);
    return Status(reason);
  }

  const Rendezvous& where_;
  const std::string rank_0_;
  std::vector<bool> present_;
  Clock::time_point heard_ = Clock::now();  // of rank 0
  std::optional<GatheringPlace> elsewhere_;
  Assembly assembly_;
};

}  // namespace

Result<PrivateDescriptor> reach(const Rendezvous& where, std::uint32_t kind, const Until& until) {
  const Hello hello{kind, static_cast<std::uint32_t>(where.rank), 0, 0};
  const auto deadline = until.deadline;
  const double silence = std::min(where.timeout, where.silence_timeout.value_or(where.timeout));
  const auto silent_until = std::min(deadline, after(silence));
  std::optional<Clock::time_point> others_until;
  for (Clock::duration pause = first_pause;; pause = std::min<Clock::duration>(2 * pause, longest_pause)) {
    Result<PrivateDescriptor> fd = connect_to(where.address, where.port, until);
    Status status = fd.status();
    if (status.ok()) status = introduce(fd->get(), where.secret, hello, until);
    if (status.ok()) return fd;
    if (until.lookout != nullptr) PACE_TRY(until.lookout->look());
    const bool others_there = fd.ok() && status.code() == Code::invalid_usage && !where.other_meeting.empty();
    if (!others_there) others_until.reset();
    if (!fd.ok()) {
      if (!may_pass(status)) return status;
    } else if (others_there) {
      // Others meet there until they know better; or it is this rank that does not.
      if (!others_until) others_until = Clock::now() + other_meeting_time;
      if (Clock::now() + pause > std::min(deadline, *others_until)) return meets_others(where);
    } else if (status.code() != Code::remote && status.code() != Code::timeout) {
      return status;  // a rank 0 that is just starting or has too many connections closes ours; later it will not
    }
    const auto end = fd.ok() ? deadline : silent_until;
    if (Clock::now() + pause >= end) return unreachable(where, fd.ok() ? where.timeout : silence, status);
    fd = PrivateDescriptor();  // not kept open while pausing
    if (interrupted()) return own_error(where.rank, Status(Code::aborted, "it was interrupted"));
    std::this_thread::sleep_for(pause);
  }
}

Result<Assembly> report_in(Rendezvous& where) {
  std::vector<int> others;
  for (int rank = 0; rank < where.size; ++rank)
    if (rank != where.rank) others.push_back(rank);
  Lookout lookout([&] { return where.why_not(others); });
  Until until(after(where.timeout));
  if (where.why_not) until.lookout = &lookout;
  const Member self = this_member();  // reads files: before the connection, which may take the last descriptor
  for (bool sent_on = false;; sent_on = true) {
    Result<PrivateDescriptor> fd = reach(where, control_connection, until);
    PACE_TRY(fd.status());
    Waiting waiting(where, std::move(*fd));
    PACE_TRY(waiting.until(until, self));
    if (!waiting.elsewhere()) return waiting.take_assembly();
    if (sent_on) return Status(Code::remote, "rank 0 sends this rank on, who has been sent to it");
    where.address = waiting.elsewhere()->address;
    where.port = static_cast<int>(waiting.elsewhere()->port);
  }
}

}  // namespace paceline
