#include "base/configuration.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace paceline {
namespace {

// How a text becomes a field; false: it cannot.
using Reader = bool (*)(std::string_view text, Configuration& into);

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && value >= Number{};
}

// Bytes, with K, M or G.
bool read_bytes(std::string_view text, std::size_t& value) {
  int shift = 0;
  if (!text.empty()) {
    const std::size_t unit = std::string_view("KMG").find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  if (!read_number(text, value) || value > (SIZE_MAX >> shift)) return false;
  value <<= shift;
  return true;
}

bool read_choice(std::string_view text, std::string& value, std::initializer_list<std::string_view> allowed) {
  for (std::string_view choice : allowed)
    if (choice == text) {
      value = text;
      return true;
    }
  return false;
}

template <std::string Configuration::*field>
bool read_text(std::string_view text, Configuration& into) {
  into.*field = text;
  return true;
}

// Seconds or microseconds: not for ever, nor so many that a clock cannot count them.
template <double Configuration::*field>
bool read_duration(std::string_view text, Configuration& into) {
  return read_number(text, into.*field) && into.*field <= 1e9;
}

template <double Configuration::*field>
bool read_limit(std::string_view text, Configuration& into) {
  return read_duration<field>(text, into) && into.*field > 0;
}

template <auto field>
bool read_field(std::string_view text, Configuration& into) {
  return read_number(text, into.*field);
}

// For a door's own variables, which it reads itself (plugins/nccl).
bool read_by_the_door(std::string_view, Configuration&) { return true; }

// Whether a letter too many, too few or wrong, or two that have changed places, make one of the other.
bool differ_by_a_slip(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a == b || b.size() - a.size() > 1) return false;
  const auto [in_a, in_b] = std::ranges::mismatch(a, b);
  const auto at = static_cast<std::size_t>(in_a - a.begin());
  if (a.size() < b.size()) return a.substr(at) == b.substr(at + 1);
  if (a.substr(at + 1) == b.substr(at + 1)) return true;
  return at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] && a.substr(at + 2) == b.substr(at + 2);
}

struct Row {
  ConfigurationRow shown;
  Reader read;
};

using C = Configuration;
constexpr Row rows[] = {
    {{"PACELINE_RANK", "number", "", "this process's rank; default: as the launcher says"}, read_field<&C::rank>},
    {{"PACELINE_SIZE", "number", "", "ranks in the job; default: as the launcher says"}, read_field<&C::size>},
    {{"PACELINE_ADDRESS", "host:port", "", "where rank 0 listens for the others"}, read_text<&C::address>},
    {{"PACELINE_SECRET", "text", "", "the job's secret, the same on every rank; it authenticates every connection"},
     read_text<&C::secret>},
    {{"PACELINE_SECRET_FILE", "path", "", "file of mode 0600 that holds the secret"}, read_text<&C::secret_file>},
    {{"PACELINE_INTERFACE", "name, address or CIDR", "",
      "network interface that rank 0, or who makes a unique id, listens on"},
     read_text<&C::interface>},
    {{"PACELINE_JOIN_TIMEOUT", "seconds, above 0 and up to 1e9", "60",
      "longest wait for the other ranks at start-up, or in a shrink"},
     read_limit<&C::join_timeout>},
    {{"PACELINE_TIMEOUT", "seconds, above 0 and up to 1e9", "300", "longest wait of a call for another rank"},
     read_limit<&C::timeout>},
    {{"PACELINE_ALGORITHM", "name", "", "run this algorithm wherever it applies; default: the fastest by the model"},
     read_text<&C::algorithm>},
    {{"PACELINE_CHUNK", "bytes", "", "largest chunk that one step moves; default: chosen"},
     [](std::string_view text, C& into) { return read_bytes(text, into.chunk); }},
    {{"PACELINE_TUNING", "path, or off", "",
      "what `paceline tune` has measured; rank 0 reads it for all; default: ~/.cache/paceline/tuning-FINGERPRINT.json"},
     read_text<&C::tuning>},
    {{"PACELINE_TOPOLOGY", "path", "",
      "cluster file or NCCL's topology XML: what is between the ranks, rank r being on its GPU r; rank 0 reads it for "
      "all"},
     read_text<&C::topology>},
    {{"PACELINE_TRANSPORT", "auto, shm or tcp", "auto", "auto: shared memory inside a node, TCP between nodes"},
     [](std::string_view text, C& into) {
       return read_choice(text, into.transport, {"auto", "shm", "tcp"});
     }},
    {{"PACELINE_SINGLE_COPY", "auto, on or off", "auto",
      "read large messages from the peer's memory where the kernel allows"},
     [](std::string_view text, C& into) {
       return read_choice(text, into.single_copy, {"auto", "on", "off"});
     }},
    {{"PACELINE_GPU_DIRECT", "auto or off", "auto",
      "long collectives read and write the ranks' GPU buffers where they lie; off: copied, through the window"},
     [](std::string_view text, C& into) {
       return read_choice(text, into.gpu_direct, {"auto", "off"});
     }},
    {{"PACELINE_GPU_BLOCKS", "number, 4 to 64", "32",
      "blocks of a kernel that moves short messages on a GPU, at most; of the ranks' the least counts"},
     [](std::string_view text, C& into) {
       return read_number(text, into.gpu_blocks) && into.gpu_blocks >= least_gpu_blocks &&
              into.gpu_blocks <= most_gpu_blocks;
     }},
    {{"PACELINE_SPIN", "microseconds", "20",
      "time to spin before a waiting rank yields its CPU; with more ranks than CPUs it yields at once"},
     read_duration<&C::spin>},
    {{"PACELINE_STAGING", "bytes, at most 1G", "",
      "shared memory that a rank stages messages in, for each of two channels, and at most as much again for its "
      "shuttles; default: 2M, less where /dev/shm is small"},
     [](std::string_view text, C& into) { return read_bytes(text, into.staging) && into.staging <= largest_staging; }},
    {{"PACELINE_NCCL_FORWARD", "list, or all", "",
      "services that NCCL serves though Paceline could, in libnccl.so.2: all_reduce,send_recv,...; the same on every "
      "rank"},
     read_by_the_door},
    {{"PACELINE_NCCL_LIBRARY", "path", "", "NCCL's own libnccl.so.2; default: beside torch, or on the loader's path"},
     read_by_the_door},
    {{"PACELINE_LOG", "warn, info or debug", "warn", "what is written to standard error"},
     [](std::string_view text, C& into) {
       return read_choice(text, into.log, {"warn", "info", "debug"});
     }},
};

struct Loaded {
  Configuration values;
  Status status;
  std::vector<std::string> misspelt = misspelt_variables();
  Loaded() { status = read_configuration(values); }
};

// Never destroyed: for threads that outlive main(). In place: waits read it.
union Kept {
  Loaded loaded;
  Kept() : loaded() {}
  ~Kept() {}
};

const Loaded& loaded() {
  static const Kept once;
  return once.loaded;
}

}  // namespace

std::vector<ConfigurationRow> configuration_rows() {
  std::vector<ConfigurationRow> shown;
  for (const Row& row : rows) shown.push_back(row.shown);
  return shown;
}

Status read_configuration(Configuration& into) {
  into = Configuration();
  Status status;
  for (const Row& row : rows) {
    const char* text = std::getenv(row.shown.variable.data());
    if (text == nullptr || *text == '\0') continue;
    Configuration tried = into;
    if (row.read(text, tried)) {
      into = std::move(tried);
    } else if (status.ok()) {
      status = Status(Code::invalid_argument,
                      fmt::format("{}={} cannot be read: it takes {}", row.shown.variable, text, row.shown.type));
    }
  }
  return status;
}

std::vector<std::string> misspelt_variables() {
  std::vector<std::string> found;
  for (char** one = ::environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view name = std::string_view(*one).substr(0, std::string_view(*one).find('='));
    if (!name.starts_with("PACELINE_")) continue;
    if (std::ranges::any_of(rows, [&](const Row& row) { return row.shown.variable == name; })) continue;
    for (const Row& row : rows)
      if (differ_by_a_slip(name, row.shown.variable))
        found.push_back(fmt::format("{} is no variable of Paceline's: {} is", name, row.shown.variable));
  }
  return found;
}

const Configuration& configuration() { return loaded().values; }
const std::vector<std::string>& misspelt_at_start() { return loaded().misspelt; }
const Status& configuration_status() { return loaded().status; }

}  // namespace paceline
