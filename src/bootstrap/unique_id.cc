// The 128 bytes of a unique id: where rank 0 listens, and the secret.
//
//   0  magic        8 bytes
//   8  port         2, little-endian
//   10 length       1, of the address
//   11 address      53, numeric, as text
//   64 secret       64, in hexadecimal
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "base/configuration.h"
#include "base/file_descriptor.h"
#include "base/fork_hold.h"
#include "bootstrap/interface.h"
#include "bootstrap/launch.h"
#include "bootstrap/secret.h"
#include "bootstrap/socket.h"

namespace paceline {
namespace {

constexpr char magic[] = "PACEID01";
constexpr std::size_t id_size = 128, port_at = 8, length_at = 10, address_at = 11, secret_at = 64;

// Between make_unique_id and the join of rank 0. By secret, which no two ids share.
std::mutex mutex;
const HeldWhileForking<mutex> held_while_forking;
std::map<std::string, FileDescriptor>& listeners() {
  static std::map<std::string, FileDescriptor> by_secret;
  return by_secret;
}

}  // namespace

Result<Bytes> make_unique_id() {
  PACE_TRY(configuration_status());
  std::string address = "127.0.0.1";
  if (const std::string& choice = configuration().interface; !choice.empty()) {
    Result<std::string> chosen = interface_address(choice);
    PACE_TRY(chosen.status());
    address = *chosen;
  }
  if (address.size() > secret_at - address_at) return Status(Code::unsupported, "too long an address: " + address);
  Result<FileDescriptor> listener = listen_at(address, 0);
  PACE_TRY(listener.status());
  Result<std::string> secret = make_secret();
  PACE_TRY(secret.status());

  const int port = port_of(local_address(listener->get()));
  Bytes id(id_size);
  std::memcpy(id.data(), magic, port_at);
  id[port_at] = static_cast<std::byte>(port & 0xff);
  id[port_at + 1] = static_cast<std::byte>(port >> 8);
  id[length_at] = static_cast<std::byte>(address.size());
  std::memcpy(id.data() + address_at, address.data(), address.size());
  std::memcpy(id.data() + secret_at, secret->data(), id_size - secret_at);
  const std::lock_guard lock(mutex);
  listeners()[*secret] = std::move(*listener);
  return id;
}

Result<Rendezvous> rendezvous_from_unique_id(std::span<const std::byte> id, int rank, int size, double timeout) {
  const std::size_t length = id.size() == id_size ? std::to_integer<std::size_t>(id[length_at]) : 0;
  if (id.size() != id_size || std::memcmp(id.data(), magic, port_at) != 0 || length == 0 ||
      length > secret_at - address_at)
    return Status(Code::invalid_argument,
                  "these 128 bytes are no unique id: make it with paceGetUniqueId on one rank, "
                  "and send it to the others unchanged");
  const auto* text = reinterpret_cast<const char*>(id.data());
  Rendezvous where;
  where.rank = rank;
  where.size = size;
  where.timeout = timeout;
  where.silence_timeout = configuration().join_timeout;
  where.port = std::to_integer<int>(id[port_at]) | std::to_integer<int>(id[port_at + 1]) << 8;
  where.address.assign(text + address_at, length);
  where.secret.assign(text + secret_at, id_size - secret_at);
  if (rank != 0) return where;

  FileDescriptor listener;
  {
    const std::lock_guard lock(mutex);
    if (const auto place = listeners().find(where.secret); place != listeners().end()) {
      listener = std::move(place->second);
      listeners().erase(place);
    }
  }
  if (listener.valid()) {
    where.listener = PrivateDescriptor(std::move(listener));  // takes a lock of its own that is held while forking
  } else if (size > 1) {
    return Status(Code::invalid_usage,
                  "rank 0 must join in the process that made the unique id, and once: make the id "
                  "on rank 0, and a new one for each communicator");
  }
  return where;
}

}  // namespace paceline
