#include "comm/topology_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "base/configuration.h"
#include "base/file_text.h"
#include "topology/topology_text.h"

namespace paceline {
namespace {

Status about_file(std::string_view what) {
  return {Code::invalid_usage, fmt::format("PACELINE_TOPOLOGY={}: {}", configuration().topology, what)};
}

}  // namespace

Status read_topology_file(TopologyFile& into) {
  const std::string& path = configuration().topology;
  if (path.empty()) return {};
  std::error_code error;
  const auto there = std::filesystem::status(path, error);
  if (there.type() == std::filesystem::file_type::not_found) return about_file("there is no such file");
  if (there.type() == std::filesystem::file_type::none) return about_file(error.message());
  // To open a pipe would wait for who writes to it.
  if (!std::filesystem::is_regular_file(there)) return about_file("it is not a file");
  const auto read = read_text(path);
  if (!read) return about_file("it cannot be read");
  if (read->empty()) return about_file("it is empty");
  const auto topology = read_topology(*read);
  if (!topology.ok()) return about_file(topology.status().message());
  into = {*read, topology->gpus().size()};
  return {};
}

}  // namespace paceline
