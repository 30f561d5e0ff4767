// What of the CUDA driver is asked before the runtime may be: whether the program uses GPUs at all.
//
// The runtime makes a context (half a gigabyte of memory, a quarter of a second) at its first real call. A program that
// never touched a GPU must not get one from us, so everything begins with these questions, which make none.
#pragma once

namespace paceline::cuda {

// Whether the driver's library is in this process. Costs a microsecond until it is, then nothing.
bool driver_loaded();

// The GPU whose memory this is; -1: host memory (pinned memory too), or none that CUDA knows.
int device_of(const void* pointer);

// Whether this process has a context on the current GPU, so that using it costs nothing new.
bool in_use();

}  // namespace paceline::cuda
