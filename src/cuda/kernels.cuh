// The kernels of one data type. Several .cu files ask for those of a few types each, so that they compile side by side.
#pragma once

#include "cuda/exchange_direct.cuh"
#include "cuda/exchange_large.cuh"
#include "cuda/exchange_short.cuh"
#include "cuda/kernels.h"
#include "cuda/walk.cuh"

namespace paceline::cuda {

template <DataType type>
Kernels kernels() {
  using Element = typename ElementOf<type>::type;
  return {{reinterpret_cast<const void*>(&exchange_short<Element, brief_strips, false, false>),
           reinterpret_cast<const void*>(&exchange_short<Element, brief_strips, false, true>)},
          {reinterpret_cast<const void*>(&exchange_short<Element, wide_strips, true, false>),
           reinterpret_cast<const void*>(&exchange_short<Element, wide_strips, false, true>)},
          {reinterpret_cast<const void*>(&exchange_short<Element, streaming_strips, true, false>),
           reinterpret_cast<const void*>(&exchange_short<Element, streaming_strips, false, true>)},
          reinterpret_cast<const void*>(&exchange_large<Element, Task>),
          reinterpret_cast<const void*>(&exchange_direct<Element>),
          reinterpret_cast<const void*>(&walk_schedule<Element>)};
}

}  // namespace paceline::cuda
