#include "bootstrap/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/configuration.h"
#include "base/log.h"
#include "bootstrap/interface.h"
#include "bootstrap/launcher.h"
#include "bootstrap/local_rendezvous.h"
#include "bootstrap/secret.h"
#include "bootstrap/socket.h"

namespace paceline {
namespace {

Status no_address(const Launch& launch) {
  return Status(Code::invalid_usage,
                fmt::format("{} does not say where rank 0 is: set PACELINE_ADDRESS=host:port to an address of rank 0's "
                            "node on every rank",
                            launch.launcher));
}

Status no_port(const Environment& environment) {
  return Status(Code::invalid_usage,
                fmt::format("MASTER_PORT={}: rank 0 listens on the port after it, which must be from 1 to 65535: give "
                            "torchrun another --master-port, or set PACELINE_ADDRESS",
                            environment("MASTER_PORT")));
}

Status no_secret() {
  return Status(Code::invalid_usage,
                "the job has no secret: `(umask 077; openssl rand -hex 32 > paceline-secret)`, and set "
                "PACELINE_SECRET_FILE to that file on every node (or PACELINE_SECRET to its contents)");
}

using Seconds = std::chrono::duration<double>;

// The loopback address that `host` has here, if it is one that is found in that time.
std::optional<std::string> loopback_of(const std::string& host, Seconds within) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(within);
  const Result<std::vector<SocketAddress>> addresses = resolve(host, 0, deadline);
  if (!addresses.ok() || !is_loopback(addresses->front())) return std::nullopt;
  return host_of(addresses->front());
}

// Many systems give their own name a loopback address, which other nodes cannot reach. Their own lists of names say so,
// and soon.
void warn_of_loopback(const std::string& host) {
  const auto loopback = loopback_of(host, Seconds(1));
  if (loopback && host != "localhost" && host != *loopback)
    log(LogLevel::warn, 0,
        "{} is {} on this machine, where other nodes cannot reach rank 0: give its numeric address, or set "
        "PACELINE_INTERFACE",
        host, *loopback);
}

}  // namespace

Result<Rendezvous> rendezvous_from(const Configuration& configuration, const Environment& environment, double timeout) {
  Result<Launch> launch = find_launch(configuration, environment);
  PACE_TRY(launch.status());
  Rendezvous where;
  where.rank = launch->rank;
  where.size = launch->size;
  where.timeout = timeout;
  if (where.size == 1) return where;

  // Rank 0 listens on the interface. So whoever finds it at a loopback address, and is thus on its machine, goes there.
  std::string listen_on;
  const Seconds resolving = std::min<Seconds>(resolving_time, Seconds(timeout));
  if (!configuration.interface.empty() &&
      (where.rank == 0 || (!launch->host.empty() && loopback_of(launch->host, resolving)))) {
    Result<std::string> address = interface_address(configuration.interface);
    PACE_TRY(address.status());
    listen_on = *address;
  }
  Result<std::string> secret = given_secret(configuration);
  PACE_TRY(secret.status());
  const bool told_where = !launch->host.empty();
  if (launch->one_node && (secret->empty() || !told_where))
    return meet_on_this_node(launch->job, where.rank, where.size, listen_on.empty() ? "127.0.0.1" : listen_on,
                             where.timeout);
  if (!told_where) return no_address(*launch);
  if (secret->empty()) return no_secret();
  if (launch->port > largest_port) return no_port(environment);
  where.address = listen_on.empty() ? launch->host : listen_on;
  where.port = launch->port;
  where.secret = *secret;
  if (where.rank == 0 && !launch->one_node) warn_of_loopback(where.address);
  return where;
}

Result<Rendezvous> rendezvous_from_environment(double timeout) {
  PACE_TRY(configuration_status());
  return rendezvous_from(
      configuration(), [](const char* variable) { return std::getenv(variable); }, timeout);
}

}  // namespace paceline
