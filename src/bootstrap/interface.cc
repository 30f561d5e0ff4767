#include "bootstrap/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "bootstrap/socket.h"

namespace paceline {
namespace {

struct Raw {
  std::array<unsigned char, 16> bytes{};
  int bits = 0;  // 32 or 128
};

Raw raw_of(const sockaddr* address) {
  Raw raw;
  if (address->sa_family == AF_INET) {
    raw.bits = 32;
    std::memcpy(raw.bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  } else {
    raw.bits = 128;
    std::memcpy(raw.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  }
  return raw;
}

// An address or a network; bits 0: it is neither.
struct Network {
  Raw base;
  int prefix = 0;
};

Network read_network(const std::string& text) {
  Network network;
  const std::size_t slash = text.find('/');
  const std::string host = text.substr(0, slash);
  if (::inet_pton(AF_INET, host.c_str(), network.base.bytes.data()) == 1)
    network.base.bits = 32;
  else if (::inet_pton(AF_INET6, host.c_str(), network.base.bytes.data()) == 1)
    network.base.bits = 128;
  network.prefix = network.base.bits;
  if (slash != text.npos) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + slash + 1, end, network.prefix);
    if (read.ec != std::errc() || read.ptr != end || network.prefix < 0 || network.prefix > network.base.bits)
      return {};
  }
  return network;
}

bool holds(const Network& network, const Raw& raw) {
  if (raw.bits != network.base.bits) return false;
  for (int bit = 0; bit < network.prefix; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    if (((raw.bytes[byte] ^ network.base.bytes[byte]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

}  // namespace

Result<std::string> interface_address(const std::string& choice) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return Status::system("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  const Network network = read_network(choice);

  std::string found, known;
  bool found_is_ipv4 = false;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", host_of(address), entry->ifa_name);
    const bool fits = network.base.bits > 0 ? holds(network, raw_of(entry->ifa_addr)) : choice == entry->ifa_name;
    if (!fits || (!found.empty() && (found_is_ipv4 || family != AF_INET))) continue;
    found = host_of(address);
    found_is_ipv4 = family == AF_INET;
  }
  if (!found.empty()) return found;
  return Status(Code::invalid_usage,
                fmt::format("PACELINE_INTERFACE={} fits no address of this machine; it has {}", choice, known));
}

}  // namespace paceline
