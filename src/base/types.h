// Data types, operations and collectives: their names and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace paceline {

// Numbers of paceDataType_t.
enum class DataType : std::uint8_t {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  float8e4m3,
  float8e5m2,
};
inline constexpr int data_type_count = 12;

// Numbers of paceRedOp_t, up to avg; premulsum stands for every operator made by paceRedOpCreatePreMulSum.
enum class Operation : std::uint8_t { sum, prod, max, min, avg, premulsum };
inline constexpr int operation_count = 6;

enum class Collective : std::uint8_t {
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  barrier,
  // Not collectives, but calls that travel the same way.
  send,
  recv,
};
inline constexpr int collective_count = 9;

std::size_t size_of(DataType type);  // bytes
bool is_floating(DataType type);

// Whether averages of the type are sums of operands that are scaled first: its own sums overflow soon. Else the sum is
// divided.
constexpr bool averages_first(DataType type) {
  return type == DataType::float16 || type == DataType::float8e4m3 || type == DataType::float8e5m2;
}

std::string_view name(DataType type);      // "float32"
std::string_view name(Operation op);       // "sum"
std::string_view name(Collective which);   // "all_reduce": as commands and JSON have it
std::string_view title(Collective which);  // "all-reduce": as sentences have it

std::optional<DataType> data_type_named(std::string_view name);
std::optional<Collective> collective_named(std::string_view name);

// Whether the collective has a root; whether it reduces.
bool is_rooted(Collective which);
bool reduces(Collective which);

}  // namespace paceline
