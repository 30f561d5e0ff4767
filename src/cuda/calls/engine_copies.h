// Long collectives that only move data, by the GPU's copy engines: no multiprocessor is used, and the link carries 5%
// more than by loads (docs/notes/gpu.md).
//
// A rank loads what it gets from the other ranks' inputs, between two meetings of all (CudaEngine::run_engines). It
// stores into no memory but its own, so a call that another rank does not make cannot harm that one. The host must know
// where the other ranks' inputs are, which it does of calls that a graph is made of (Registration::agree). No CUDA
// here: what a call does can be tested anywhere.
#pragma once

#include <cstdint>

#include "cuda/memory/window.h"
#include "engine/request.h"

namespace paceline::cuda {

struct EngineCopy {
  int from = 0;  // whose input
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  std::uint64_t bytes = 0;
};

// What a rank copies into its output, in order; and whether the call, which is the same on every rank, can go this way
// at all. Whether it should, a table says (tuning/gpu_table.h).
struct EngineCopies {
  bool possible = false;
  int count = 0;
  EngineCopy copies[max_gpus];
};
EngineCopies plan_engine_copies(const Request& request, int rank, int ranks);

}  // namespace paceline::cuda
