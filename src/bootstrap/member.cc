#include "bootstrap/member.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace paceline {
namespace {

std::string link_target(const char* path) {
  std::array<char, 256> target{};
  const ssize_t length = ::readlink(path, target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : std::string();
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

}  // namespace

Member this_member() {
  Member member;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  member.host = host.data();
  const std::string boot = boot_id();
  member.node = fmt::format("{} {} {} {}", boot.empty() ? member.host : boot, link_target("/proc/self/ns/ipc"),
                            link_target("/proc/self/ns/mnt"), ::geteuid());
  member.pid = ::getpid();
  return member;
}

std::string named(int rank, const Member& member) {
  return fmt::format("rank {} ({}, pid {})", rank, member.host, member.pid);
}

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last < i + 2) continue;
    text += fmt::format(" to {}", ranks[last]);
    i = last;
  }
  return text;
}

Status own_error(int rank, const Status& status) {
  if (status.ok() || status.detail().rank >= 0) return status;
  Status::Detail detail = status.detail();
  const Member self = this_member();
  detail.rank = rank;
  detail.host = self.host;
  detail.message = named(rank, self) + ": " + detail.message;
  return Status(std::move(detail));
}

Status::Detail absence(const std::vector<int>& missing, const std::string& what, double seconds) {
  Status::Detail detail;
  detail.code = Code::timeout;
  detail.message = fmt::format("{} did not come to {} within {:g} s", listed(missing), what, seconds);
  detail.rank = missing.empty() ? -1 : missing.front();
  return detail;
}

}  // namespace paceline
