#include "base/file_text.h"

#include <array>
#include <fstream>

namespace paceline {

std::optional<std::string> read_text(const std::filesystem::path& file) {
  // Not by iterators: of a folder, they throw.
  std::ifstream stream(file);
  std::string text;
  std::array<char, 4096> piece;
  do {
    stream.read(piece.data(), piece.size());
    text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
  } while (stream);
  if (!stream.eof()) return std::nullopt;
  return text;
}

}  // namespace paceline
