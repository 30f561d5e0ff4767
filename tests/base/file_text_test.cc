#include "base/file_text.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace paceline {

TEST_CASE("a file's text is read whole, also of one that is empty or does not say its length") {
  const auto path = std::filesystem::temp_directory_path() / ("paceline-text-" + std::to_string(::getpid()));
  for (const std::size_t length : {0, 1, 4095, 4096, 4097, 100000}) {
    const std::string text(length, 'x');
    std::ofstream(path) << text;
    CHECK(read_text(path) == text);
  }
  std::filesystem::remove(path);
  REQUIRE(read_text("/proc/self/comm").has_value());
  CHECK(read_text("/proc/self/comm")->ends_with("\n"));
}

TEST_CASE("what cannot be read has no text") {
  CHECK(!read_text("/nowhere").has_value());
  CHECK(!read_text("/").has_value());
  CHECK(!read_text("/proc/self/mem").has_value());  // opens; reading fails
}

}  // namespace paceline
