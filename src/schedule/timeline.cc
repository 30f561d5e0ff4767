#include "schedule/timeline.h"

#include <fmt/format.h>

namespace paceline {

std::string chrome_trace(std::span<const Deed> timeline, std::span<const Traffic> traffic) {
  std::string text;
  const char* separator = "[";
  for (const Deed& deed : timeline) {
    text += fmt::format(
        "{}\n{{\"name\":\"{}\",\"cat\":\"simulated\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
        "\"dur\":{:.3f},\"args\":{{\"peer\":{},\"bytes\":{:.0f},\"call\":\"{} #{}\"{}}}}}",
        separator, deed.name, deed.rank, deed.channel, deed.begin, deed.end - deed.begin, deed.peer, deed.bytes,
        traffic[static_cast<std::size_t>(deed.collective)].name, deed.collective,
        deed.reduces ? ",\"reduces\":true" : "");
    separator = ",";
  }
  text += fmt::format("{}\n]\n", *separator == '[' ? "[" : "");
  return text;
}

}  // namespace paceline
