// The kernels of one data type. Several .cu files ask for those of a few types each, so that they compile side by side.
#pragma once

#include "cuda/kernels/exchange_direct.cuh"
#include "cuda/kernels/exchange_large.cuh"
#include "cuda/kernels/exchange_short.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/passed_strips.cuh"
#include "cuda/kernels/walk.cuh"

namespace paceline::cuda {

template <class Element, int strips, bool once>
ByRanks short_kernels() {
  return {reinterpret_cast<const void*>(&exchange_short<Element, strips, once, false, false>),
          reinterpret_cast<const void*>(&exchange_short<Element, strips, once, false, true>)};
}
// Element: void, where they are moved as they are.
template <class Element>
StripKernels strip_kernels() {
  return {short_kernels<Element, brief_stride.strips, true>(), short_kernels<Element, wide_stride.strips, true>(),
          short_kernels<Element, streaming_stride.strips, false>(),
          reinterpret_cast<const void*>(&exchange_short<Element, streaming_stride.strips, false, true, false>)};
}

template <class Element>
const void* passed_strips_kernel() {
  if constexpr (sums_are_stored<Element>) return reinterpret_cast<const void*>(&pass_strips<Element>);
  return nullptr;
}

template <DataType type>
Kernels kernels() {
  using Element = typename ElementOf<type>::type;
  static_assert(scales_first<Element> == averages_first(type));
  return {strip_kernels<Element>(),
          reinterpret_cast<const void*>(&exchange_large<Element, Task>),
          {reinterpret_cast<const void*>(&exchange_direct<Element, false>),
           reinterpret_cast<const void*>(&exchange_direct<Element, true>)},
          passed_strips_kernel<Element>(),
          reinterpret_cast<const void*>(&walk_schedule<Element>)};
}

}  // namespace paceline::cuda
