// How long the pieces are that algorithms move.
#pragma once

#include <vector>

#include "schedule/cost.h"
#include "schedule/problem.h"

namespace paceline {

// The longest chunk that the communicator allows, in elements.
std::size_t largest_chunk(const CostModel& model);

// The chunk, in elements, that takes `count` elements soonest through so many hops, each of which passes a chunk on
// while it takes the next: d/dC of (M/C) ts + (hops - 1) C/B is zero at C = sqrt(M ts B / (hops - 1)),
// ts that of a chunk (CostModel::chunk_start). Over one hop less than 16 KB is one chunk, over several none is shorter
// than 4 KB.
std::size_t pipeline_chunk(std::size_t count, int hops, const CostModel& model);

// That of a message which all others read where it is written once: at least half the message, up to 32 KB, for a chunk
// costs each of its readers something.
std::size_t fan_chunk(std::size_t count, int ranks, const CostModel& model);

// That of parts which all ranks exchange with all: in shared memory all that they exchange at once should be in their
// caches still when it is read (measured on 16 CPUs: docs/notes/cpu.md, Slices).
std::size_t exchange_chunk(std::size_t part, int ranks, const CostModel& model);

// The problem's sizes as cost formulas want them.
struct Sizes {
  Sizes(const Problem& problem, const Parameters& parameters, const CostModel& model, int parts = 1);

  // The chunks that so many bytes go in, at least 1.
  [[nodiscard]] double chunks_of(double length) const;

  int others;      // n - 1
  double bytes;    // M: of `count` elements
  double part;     // M / parts
  double longest;  // C: of one chunk
  double chunk;    // min(C, part)
  double chunks;   // of a part
  double kept;     // M out of place, 0 in place: what a rank copies from its input to its output
};

// The parameters of algorithms that ask for nothing but the longest chunk.
Parameters largest_chunks(const Problem& problem, const CostModel& model);

// [0, count) in slices of `parts` chunks, one after another. An algorithm that treats a long message slice by slice
// finds each slice in the cache when it needs it again.
std::vector<Part> slices(std::size_t count, int parts, std::size_t chunk);

}  // namespace paceline
