#include "tuning/tuning_file.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/configuration.h"
#include "base/cpus.h"
#include "base/file_text.h"
#include "base/hash.h"
#include "base/log.h"
#include "paceline/paceline.h"
#include "topology/detect.h"
#include "tuning/profile.h"

namespace paceline {
namespace {

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::filesystem::path(cache) / "paceline";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::filesystem::path(home) / ".cache" / "paceline";
  return {};
}

}  // namespace

std::string machine_fingerprint() {
  return fmt::format("{:016x}",
                     add_to_hash(empty_hash, fmt::format("{} CPUs\n{}", machine_cpus(), describe_parts("/"))));
}

std::string tuning_path(bool even_if_missing) {
  const std::string& set = configuration().tuning;
  if (set == "off") return "";
  if (!set.empty()) return set;
  const std::filesystem::path folder = cache_folder();
  std::error_code error;
  if (folder.empty() || (!even_if_missing && !std::filesystem::is_directory(folder, error))) return "";
  return folder / fmt::format("tuning-{}.json", machine_fingerprint());
}

std::string library_version() { return fmt::format("{}.{}.{}", PACE_MAJOR, PACE_MINOR, PACE_PATCH); }

std::string reason_against(std::string_view text, std::string_view fingerprint, std::string_view version) {
  const auto profile = read_profile(text);
  if (!profile.ok()) return profile.status().message();
  if (profile->fingerprint != fingerprint) return "it was made on another machine";
  if (profile->version != version)
    return fmt::format("it was made by version {:.20}, this is {}", profile->version, version);
  return "";
}

std::string tuning_of_this_machine(int rank) {
  const std::string path = tuning_path();
  if (path.empty()) return "";
  std::error_code error;
  // To open a pipe would wait for who writes to it.
  const bool regular = std::filesystem::is_regular_file(path, error);
  const std::optional<std::string> text = regular ? read_text(path) : std::nullopt;
  if (!text && configuration().tuning.empty() && !std::filesystem::exists(path, error)) return "";
  const std::string reason =
      text ? reason_against(*text, machine_fingerprint(), library_version()) : "it cannot be read";
  if (reason.empty()) return *text;
  log(LogLevel::warn, rank,
      "{} is not used: {}. Algorithms are chosen by the model, calls on GPU memory by the library's own tables; run "
      "`paceline tune` to make it anew",
      path, reason);
  return "";
}

}  // namespace paceline
