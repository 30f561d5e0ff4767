// fmt is used as headers alone, since Debian has no archive of it. In each file that formats its own code would take
// the compiler 3 s: here it is compiled once, and the others see it as a library's (CMakeLists.txt).
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace paceline {
namespace {

// All that fmt::format calls.
[[gnu::used]] std::string (*const formats)(fmt::string_view, fmt::format_args) = &fmt::vformat;

}  // namespace
}  // namespace paceline
