// Reductions on the CPU: one row of elements folded into another, for every data type and operation, vectorised with
// run-time dispatch (Highway).
//
// 16-bit and 8-bit floats are computed in float32 and rounded to nearest even once, at the end of a fold. Integers
// wrap. min and max of a NaN is a NaN, and -0 is less than +0; every NaN result is the type's one quiet NaN, but for a
// number too large for float8 e4m3, which has no infinity: it becomes a NaN with its sign. The result does not depend
// on the instruction set, on alignment or on the position in the row: the same bits everywhere.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/types.h"

namespace paceline {

// target[i] = sources[0][i] op sources[1][i] op ... , folded from left to right. At least one source (one: a copy).
// target may be one of the sources (the same address), and overlaps no other part of them. No alignment is asked for.
// `op` is sum, prod, max or min (avg and premulsum are sums, with divide() after or multiply() before).
using FoldFunction = void (*)(std::byte* target, const std::byte* const* sources, std::size_t source_count,
                              std::size_t elements);
// The function for a type and an operation: looked up once, when a plan is made.
FoldFunction fold_function(DataType type, Operation op);

// A number of the type's arithmetic: a float32 for 16-bit and 8-bit floats, in which a third is no third; else one
// element.
using Factor = std::array<std::byte, 8>;
// Of one element; and of a type whose averages are scaled, from a double.
Factor factor_of_element(DataType type, const void* element);
Factor scaling_factor(double value);

// target[i] = source[i] * factor, in the type's arithmetic (float32 for 16-bit and 8-bit floats, rounded once).
// target may be source.
void multiply(DataType type, std::byte* target, const std::byte* source, const Factor& factor, std::size_t elements);
// target[i] /= divisor, divisor >= 1; integers towards zero, floats as multiply.
void divide(DataType type, std::byte* target, int divisor, std::size_t elements);

// The instruction set in use: "AVX3", "AVX2", "SSE4", ...
const char* instruction_set();

}  // namespace paceline
