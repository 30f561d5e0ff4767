// The files and links that Linux shows of its devices, read as they are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace paceline {

// The text of a file without the white space at its end; empty where it cannot be read.
std::string text_of(const std::filesystem::path& file);
// The whole number that a file begins with.
long number_of(const std::filesystem::path& file, long otherwise);
// Names of a directory's entries, sorted; empty where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& directory);
// The PCI addresses that a device's real path passes, from the root port down ("0000:00:01.0", "0000:01:00.0", ...).
std::vector<std::string> pci_path(const std::filesystem::path& device);

}  // namespace paceline
