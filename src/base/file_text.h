// A file's text.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace paceline {

// Nothing where it cannot be read: there is none, it is a folder, or reading fails on the way.
std::optional<std::string> read_text(const std::filesystem::path& file);

}  // namespace paceline
