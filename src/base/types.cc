#include "base/types.h"

#include <array>

namespace paceline {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t bytes;
  bool floating;
};
constexpr std::array<TypeRow, data_type_count> types = {{{"int8", 1, false},
                                                         {"uint8", 1, false},
                                                         {"int32", 4, false},
                                                         {"uint32", 4, false},
                                                         {"int64", 8, false},
                                                         {"uint64", 8, false},
                                                         {"float16", 2, true},
                                                         {"float32", 4, true},
                                                         {"float64", 8, true},
                                                         {"bfloat16", 2, true},
                                                         {"float8e4m3", 1, true},
                                                         {"float8e5m2", 1, true}}};

constexpr std::array<std::string_view, operation_count> operations = {"sum", "prod", "max", "min", "avg", "premulsum"};

struct CollectiveRow {
  std::string_view name;
  std::string_view title;
  bool rooted;
  bool reduces;
};
constexpr std::array<CollectiveRow, 11> collectives = {{{"broadcast", "broadcast", true, false},
                                                        {"all_reduce", "all-reduce", false, true},
                                                        {"reduce", "reduce", true, true},
                                                        {"all_gather", "all-gather", false, false},
                                                        {"reduce_scatter", "reduce-scatter", false, true},
                                                        {"gather", "gather", true, false},
                                                        {"scatter", "scatter", true, false},
                                                        {"all_to_all", "all-to-all", false, false},
                                                        {"barrier", "barrier", false, false},
                                                        {"send", "send", false, false},
                                                        {"recv", "recv", false, false}}};

const TypeRow& row(DataType type) { return types[static_cast<std::size_t>(type)]; }
const CollectiveRow& row(Collective which) { return collectives[static_cast<std::size_t>(which)]; }

template <class Enum, class Rows, class NameOf>
std::optional<Enum> find(const Rows& rows, std::string_view name, NameOf name_of) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (name_of(rows[i]) == name) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::size_t size_of(DataType type) { return row(type).bytes; }
bool is_floating(DataType type) { return row(type).floating; }
std::string_view name(DataType type) { return row(type).name; }
std::string_view name(Operation op) { return operations[static_cast<std::size_t>(op)]; }
std::string_view name(Collective which) { return row(which).name; }
std::string_view title(Collective which) { return row(which).title; }
bool is_rooted(Collective which) { return row(which).rooted; }
bool reduces(Collective which) { return row(which).reduces; }

std::optional<DataType> data_type_named(std::string_view name) {
  return find<DataType>(types, name, [](const TypeRow& r) { return r.name; });
}
std::optional<Collective> collective_named(std::string_view name) {
  return find<Collective>(collectives, name, [](const CollectiveRow& r) { return r.name; });
}

}  // namespace paceline
