// Which of this machine's addresses PACELINE_INTERFACE means.
#pragma once

#include <string>

#include "base/status.h"

namespace paceline {

// `choice` is an interface's name ("eth0"), an address, or a network ("10.1.0.0/16"); IPv4 is preferred. Returns a
// numeric address. Code::invalid_usage if this machine has no such address, with those that it has.
Result<std::string> interface_address(const std::string& choice);

}  // namespace paceline
