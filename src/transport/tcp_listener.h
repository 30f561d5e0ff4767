// Where the other ranks of a communicator reach this one for their data: a port of the kernel's choice on one address.
#pragma once

#include <cstdint>
#include <string>

#include "base/private_descriptor.h"
#include "base/status.h"

namespace paceline {

class TcpListener {
 public:
  // `address` is numeric, IPv4 or IPv6 (with %scope if it needs one), and of one interface: "0.0.0.0" and "::" are
  // refused.
  static Result<TcpListener> open(const std::string& address);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  TcpListener(PrivateDescriptor socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}

  PrivateDescriptor socket_;  // non-blocking
  std::uint16_t port_;
};

}  // namespace paceline
