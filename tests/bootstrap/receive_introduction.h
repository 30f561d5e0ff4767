// The accepting side of the handshake for a test that serves one connection, and waits for it.
#pragma once

#include <string>

#include "bootstrap/handshake.h"

namespace paceline::testing {

inline Result<Hello> receive_introduction(int fd, const std::string& secret, const Until& until) {
  Introduction introduction(fd, secret);
  for (;;) {
    PACE_TRY(introduction.advance());
    if (introduction.done()) return introduction.hello();
    PACE_TRY(wait_for(fd, introduction.events(), until));
  }
}

}  // namespace paceline::testing
