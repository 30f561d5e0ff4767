// The length of a file that is made for memory to share.
#pragma once

#include <cstddef>

namespace paceline {

// Makes an open file so long: 0, or the errno. EFBIG where no file may be (RLIMIT_FSIZE): to try would end the program
// by a signal.
int set_length(int descriptor, std::size_t bytes);

}  // namespace paceline
