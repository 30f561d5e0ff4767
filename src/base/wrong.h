// What the caller got wrong.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace paceline {

inline Status wrong(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

}  // namespace paceline
