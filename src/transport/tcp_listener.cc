#include "transport/tcp_listener.h"

#include <fmt/format.h>

#include "bootstrap/socket.h"

namespace paceline {

Result<TcpListener> TcpListener::open(const std::string& address) {
  auto found = resolve(address, 0, Clock::now() + resolving_time);
  PACE_TRY(found.status());
  const std::string numeric = host_of(found->front());
  if (numeric == "0.0.0.0" || numeric == "::")
    return Status(Code::invalid_argument, fmt::format("{} means every interface: name the address of one", address));
  auto socket = listen_at(numeric, 0);
  PACE_TRY(socket.status());
  const int port = port_of(local_address(socket->get()));
  return TcpListener(PrivateDescriptor(std::move(*socket)), static_cast<std::uint16_t>(port));
}

}  // namespace paceline
