// One call of a collective with inputs that every type holds exactly, and the bytes that must come out.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/types.h"
#include "comm/threads.h"
#include "schedule/problem.h"

namespace paceline::testing {

struct Case {
  Problem problem;
  DataType type = DataType::int32;
  Operation op = Operation::sum;
};

// Element i of rank's input.
inline double input_of(const Case& one, int rank, std::size_t i) {
  const auto mixed = static_cast<int>(i % 60) + 3 * rank;
  if (one.op == Operation::prod) return 1 + mixed % 2;
  if (one.op == Operation::avg && is_floating(one.type)) return one.problem.ranks * (1 + mixed % 2);
  return 1 + mixed % 4;
}

inline double folded(const Case& one, std::size_t i) {
  double result = input_of(one, 0, i);
  for (int rank = 1; rank < one.problem.ranks; ++rank) {
    const double next = input_of(one, rank, i);
    switch (one.op) {
      case Operation::prod: result *= next; break;
      case Operation::min: result = std::min(result, next); break;
      case Operation::max: result = std::max(result, next); break;
      default: result += next;
    }
  }
  if (one.op != Operation::avg) return result;
  result /= one.problem.ranks;
  return is_floating(one.type) ? result : static_cast<double>(static_cast<long>(result));
}

// Element i of rank's output.
inline double output_of(const Case& one, int rank, std::size_t i) {
  const std::size_t count = one.problem.count;
  const auto block = static_cast<std::size_t>(rank) * count;
  switch (one.problem.collective) {
    case Collective::broadcast: return input_of(one, one.problem.root, i);
    case Collective::scatter: return input_of(one, one.problem.root, block + i);
    case Collective::all_gather:
    case Collective::gather: return input_of(one, static_cast<int>(i / count), i % count);
    case Collective::all_to_all: return input_of(one, static_cast<int>(i / count), block + i % count);
    case Collective::reduce_scatter: return folded(one, block + i);
    default: return folded(one, i);
  }
}

inline std::string text(const Case& one) {
  return std::string(title(one.problem.collective)) + " of " + std::to_string(one.problem.count) + " " +
         std::string(name(one.type)) + ", " + std::string(name(one.op)) + ", root " + std::to_string(one.problem.root) +
         (one.problem.in_place ? ", in place" : "");
}

inline paceResult_t call(const Case& one, const void* send, void* recv, paceComm_t comm, void* stream = nullptr) {
  const auto type = static_cast<paceDataType_t>(one.type);
  const auto op = static_cast<paceRedOp_t>(one.op);
  const std::size_t count = one.problem.count;
  const int root = one.problem.root;
  switch (one.problem.collective) {
    case Collective::broadcast: return paceBroadcast(send, recv, count, type, root, comm, stream);
    case Collective::all_reduce: return paceAllReduce(send, recv, count, type, op, comm, stream);
    case Collective::reduce: return paceReduce(send, recv, count, type, op, root, comm, stream);
    case Collective::all_gather: return paceAllGather(send, recv, count, type, comm, stream);
    case Collective::reduce_scatter: return paceReduceScatter(send, recv, count, type, op, comm, stream);
    case Collective::gather: return paceGather(send, recv, count, type, root, comm, stream);
    case Collective::scatter: return paceScatter(send, recv, count, type, root, comm, stream);
    case Collective::all_to_all: return paceAllToAll(send, recv, count, type, comm, stream);
    default: return paceBarrier(comm, stream);
  }
}

inline void fill_input(const Case& one, int rank, std::byte* at) {
  for (std::size_t i = 0; i < input_elements(one.problem, rank); ++i)
    store_element(one.type, input_of(one, rank, i), at + i * size_of(one.type));
}

// The place of the first wrong element; empty: none.
inline std::string wrong_output(const Case& one, int rank, const std::byte* at) {
  for (std::size_t i = 0; i < output_elements(one.problem, rank); ++i) {
    std::array<std::byte, 8> wanted{};
    store_element(one.type, output_of(one, rank, i), wanted.data());
    const std::byte* found = at + i * size_of(one.type);
    if (std::memcmp(found, wanted.data(), size_of(one.type)) != 0)
      return text(one) + ": element " + std::to_string(i) + " is " + std::to_string(load_element(one.type, found)) +
             ", not " + std::to_string(output_of(one, rank, i));
  }
  return "";
}

// Where a rank's input and output lie in one piece of memory.
struct Buffers {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;

  Buffers(const Case& one, int rank, std::byte* memory) {
    const std::size_t element = size_of(one.type);
    const std::size_t in = input_elements(one.problem, rank) * element;
    const std::size_t out = output_elements(one.problem, rank) * element;
    if (one.problem.in_place && out != 0) {
      const std::ptrdiff_t shift = input_in_output(one.problem, rank) * static_cast<std::ptrdiff_t>(element);
      send = shift < 0 ? memory : memory + shift;
      recv = shift < 0 ? memory - shift : memory;
    } else {
      if (in != 0) send = memory;
      if (out != 0) recv = memory + in;
    }
  }
  static std::size_t bytes(const Case& one, int rank) {
    return (input_elements(one.problem, rank) + output_elements(one.problem, rank)) * size_of(one.type);
  }
};

// Run it on this rank: what is wrong, or nothing. `memory`: at least Buffers::bytes.
inline std::string run_case(const Case& one, int rank, paceComm_t comm, std::byte* memory) {
  const Buffers buffers(one, rank, memory);
  if (buffers.send != nullptr) fill_input(one, rank, buffers.send);
  const std::string complaint = expect(call(one, buffers.send, buffers.recv, comm));
  if (!complaint.empty()) return text(one) + ": " + complaint;
  return wrong_output(one, rank, buffers.recv);
}

// What the table's rows are tried with: each algorithm that serves, each place, some roots, changing types.
template <class Function>
std::string each_case(int ranks, std::vector<std::size_t> counts, Function function) {
  struct Kind {
    DataType type;
    Operation op;
  };
  static constexpr Kind kinds[] = {
      {DataType::int32, Operation::sum},      {DataType::float32, Operation::avg},
      {DataType::uint8, Operation::max},      {DataType::bfloat16, Operation::sum},
      {DataType::float64, Operation::prod},   {DataType::int64, Operation::min},
      {DataType::float8e4m3, Operation::max}, {DataType::uint64, Operation::sum},
      {DataType::float16, Operation::sum},    {DataType::int8, Operation::avg},
      {DataType::uint32, Operation::prod},    {DataType::float8e5m2, Operation::min},
      {DataType::int32, Operation::avg},
  };
  std::size_t turn = 0;
  for (int which = 0; which < collective_count; ++which)
    for (int root = 0; root < ranks; root += std::max(1, (ranks - 1) / 2))
      for (std::size_t count : counts)
        for (bool in_place : {false, true}) {
          Case one;
          one.problem = {static_cast<Collective>(which), ranks, root, count, in_place};
          if (root != 0 && !is_rooted(one.problem.collective)) continue;
          const Kind& kind = kinds[turn++ % std::size(kinds)];
          one.type = kind.type;
          one.op = kind.op;
          if (auto complaint = function(one); !complaint.empty()) return complaint;
        }
  return "";
}

}  // namespace paceline::testing
