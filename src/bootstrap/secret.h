// The job's secret: where it comes from.
#pragma once

#include <string>

#include "base/configuration.h"
#include "base/status.h"

namespace paceline {

// 32 random bytes, in hexadecimal.
Result<std::string> make_secret();

// PACELINE_SECRET, else the contents of PACELINE_SECRET_FILE without the white space at its end; empty if neither is
// set. Errors: a file that others may read, that belongs to another user, or that is empty.
Result<std::string> given_secret(const Configuration& configuration);

}  // namespace paceline
