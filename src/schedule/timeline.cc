#include "schedule/timeline.h"

#include <fmt/format.h>

namespace paceline {

std::string chrome_trace(std::span<const Deed> timeline, std::span<const Traffic> traffic) {
  fmt::memory_buffer text;
  const char* separator = "[";
  for (const Deed& deed : timeline) {
    fmt::format_to(std::back_inserter(text),
                   "{}\n{{\"name\":\"{}\",\"cat\":\"simulated\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
                   "\"dur\":{:.3f},\"args\":{{\"peer\":{},\"bytes\":{:.0f},\"call\":\"{} #{}\"}}}}",
                   separator, deed.name, deed.rank, deed.channel, deed.begin, deed.end - deed.begin, deed.peer,
                   deed.bytes, traffic[static_cast<std::size_t>(deed.collective)].name, deed.collective);
    separator = ",";
  }
  fmt::format_to(std::back_inserter(text), "{}\n]\n", *separator == '[' ? "[" : "");
  return fmt::to_string(text);
}

}  // namespace paceline
