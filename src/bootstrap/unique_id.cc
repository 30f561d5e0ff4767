// The 128 bytes of a unique id: where rank 0 listens, or the signpost to it, and the secret.
//
//   0  magic        8 bytes
//   8  port         2, little-endian
//   10 rank 0 port  2: where a rank 0 of another process says that it gathers elsewhere
//   12 length       1, of the address
//   13 address      51, numeric, as text
//   64 secret       64, in hexadecimal

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/configuration.h"
#include "base/fork_hold.h"
#include "bootstrap/interface.h"
#include "bootstrap/launch.h"
#include "bootstrap/secret.h"
#include "bootstrap/signpost.h"

namespace paceline {
namespace {

constexpr char magic[] = "PACEID02";
constexpr std::size_t id_size = 128, port_at = 8, rank_0_port_at = 10, length_at = 12, address_at = 13, secret_at = 64;

using Signposts = std::map<std::string, std::shared_ptr<Signpost>>;

// By secret, which no two ids share. What comes out of the map ends its life outside the mutex.
std::mutex mutex;
const HeldWhileForking<mutex> held_while_forking;
Signposts& signposts() {
  static auto* const by_secret = new Signposts;  // never destroyed: threads may still make ids
  return *by_secret;
}

void keep(const std::string& secret, std::shared_ptr<Signpost> one) {
  Signposts over;
  const std::lock_guard lock(mutex);
  Signposts& all = signposts();
  for (auto next = all.begin(); next != all.end();) {
    const auto other = next++;
    if (other->second->is_over()) over.insert(all.extract(other));
  }
  all[secret] = std::move(one);
}

std::shared_ptr<Signpost> take(const std::string& secret) {
  const std::lock_guard lock(mutex);
  auto node = signposts().extract(secret);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void write_port(Bytes& id, std::size_t at, int port) {
  id[at] = static_cast<std::byte>(port & 0xff);
  id[at + 1] = static_cast<std::byte>(port >> 8);
}

int read_port(std::span<const std::byte> id, std::size_t at) {
  return std::to_integer<int>(id[at]) | std::to_integer<int>(id[at + 1]) << 8;
}

// Where the others come to this rank 0.
Status gather_by_id(Rendezvous& where, int rank_0_port) {
  const std::shared_ptr<Signpost> signpost = take(where.secret);
  if (signpost != nullptr) where.listener = signpost->take_down();
  if (where.listener.valid()) return {};
  if (where.size > 1) return gather_elsewhere(where, rank_0_port);
  dismiss(where, rank_0_port);
  return {};
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
  Result<std::string> secret = make_secret();
  PACE_TRY(secret.status());
  auto signpost = Signpost::put_up(address, *secret);
  PACE_TRY(signpost.status());

  Bytes id(id_size);
  std::memcpy(id.data(), magic, port_at);
  write_port(id, port_at, (*signpost)->port());
  write_port(id, rank_0_port_at, (*signpost)->rank_0_port());
  id[length_at] = static_cast<std::byte>(address.size());
  std::memcpy(id.data() + address_at, address.data(), address.size());
  std::memcpy(id.data() + secret_at, secret->data(), id_size - secret_at);
  keep(*secret, std::move(*signpost));
  return id;
}

int forget_unused_ids() {
  Signposts all;
  {
    const std::lock_guard lock(mutex);
    all.swap(signposts());
  }
  for (const auto& [secret, one] : all) (void)one->take_down();
  return static_cast<int>(all.size());
}

Result<Rendezvous> rendezvous_from_unique_id(std::span<const std::byte> id, int rank, int size, double timeout) {
  const std::size_t length = id.size() == id_size ? std::to_integer<std::size_t>(id[length_at]) : 0;
  if (id.size() != id_size || std::memcmp(id.data(), magic, port_at) != 0 || length == 0 ||
      length > secret_at - address_at)
    return Status(Code::invalid_argument,
                  "these 128 bytes are no unique id: make it with paceGetUniqueId in one "
                  "process, and send it to the ranks unchanged");
  const auto* text = reinterpret_cast<const char*>(id.data());
  Rendezvous where;
  where.rank = rank;
  where.size = size;
  where.timeout = timeout;
  where.silence_timeout = configuration().join_timeout;
  where.port = read_port(id, port_at);
  where.address.assign(text + address_at, length);
  where.secret.assign(text + secret_at, id_size - secret_at);
  if (rank == 0) PACE_TRY(gather_by_id(where, read_port(id, rank_0_port_at)));
  return where;
}

}  // namespace paceline
