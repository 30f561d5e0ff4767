#include "topology/sysfs.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <system_error>

#include "base/file_text.h"

namespace paceline {
namespace {

// "0000:3b:00.0": a domain of four or more digits.
bool is_bus_id(std::string_view name) {
  if (name.size() < 12 || name[name.size() - 2] != '.' || name[name.size() - 5] != ':' || name[name.size() - 8] != ':')
    return false;
  return std::ranges::all_of(name, [](unsigned char c) { return std::isxdigit(c) || c == ':' || c == '.'; });
}

}  // namespace

std::string text_of(const std::filesystem::path& file) {
  std::string text = read_text(file).value_or("");
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

long number_of(const std::filesystem::path& file, long otherwise) {
  const std::string text = text_of(file);
  long value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename());
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> pci_path(const std::filesystem::path& device) {
  std::error_code error;
  std::vector<std::string> path;
  for (const auto& part : std::filesystem::canonical(device, error))
    if (is_bus_id(part.native())) path.push_back(part);
  return path;
}

}  // namespace paceline
