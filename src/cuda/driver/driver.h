// What of the CUDA driver is asked before the runtime may be: whether the program uses GPUs at all.
//
// The runtime makes a context (half a gigabyte of memory, a quarter of a second) at its first real call. A program that
// never touched a GPU must not get one from us, so everything begins with these questions, which make none.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace paceline::cuda {

// Whether the driver's library is in this process. Costs a microsecond until it is, then nothing.
bool driver_loaded();

// A function of the driver by its name in the library; nullptr: the driver is not loaded, or has none.
void* driver_function(const char* name);
template <class Function>
void find_driver_function(const char* name, Function*& into) {
  into = reinterpret_cast<Function*>(driver_function(name));
}

// The GPU whose memory this is; -1: host memory (pinned memory too), or none that CUDA knows.
int device_of(const void* pointer);

// Whether kernels of GPU `device`, on this stream, may use memory of another GPU: it is managed, or the stream is one
// that the program made on `device`, behind which it has put what writes the memory. The default stream says no such
// thing: each GPU has its own, and all have one name.
bool is_shared_with(int device, const void* memory_of_another, void* stream);

// The GPU of a stream, a cudaStream_t; -1: it is a default one, of which each GPU has its own, or the driver does not
// tell.
int device_of_stream(void* stream);

// "NVIDIA H200"; empty: there is no such GPU.
std::string name_of(int device);

// Whether this process has a context on the current GPU, so that using it costs nothing new.
bool in_use();

// The thread's current GPU is `device` while this lives, for the runtime's calls and the driver's. By a context that is
// put before the thread's own: cudaSetDevice, to restore what was there, would make a context on a GPU that the thread
// has never used (GPU 0, half a gigabyte), and take one that the program has made itself off the thread.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int entered_ = -1;  // as the driver numbers it; -1: it was the current one
};

// A piece of GPU memory as it was allocated.
struct Allocation {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t id = 0;    // no other allocation of the process ever has the same; 0: no memory that CUDA knows
  bool shareable = false;  // with other processes, by an IPC handle; on a GPU that all of this process's may reach
  int device = -1;         // whose memory it is
};
Allocation allocation_of(std::uint64_t address);

// CUDA IPC: a handle for the allocation that begins at `base`; another process's memory by it, nullptr if that cannot
// be had; the end of it, which waits for the kernels of the current GPU.
using IpcHandle = std::array<char, 64>;
bool ipc_handle(std::uint64_t base, IpcHandle& into);
void* ipc_open(const IpcHandle& handle);
void ipc_close(void* memory);

// As long as one lives, this thread closes nothing: between the launches of a group such a wait might be for ranks that
// launch in another order.
class NothingCloses {
 public:
  NothingCloses() { ++alive(); }
  ~NothingCloses() { --alive(); }
  NothingCloses(const NothingCloses&) = delete;
  NothingCloses& operator=(const NothingCloses&) = delete;
  static bool here() { return alive() != 0; }

 private:
  static int& alive() {
    thread_local int count = 0;
    return count;
  }
};

// What comes on the stream, a cudaStream_t, waits until the word of GPU memory has reached `value`; false: it does not.
bool wait_for_word(void* stream, std::uint64_t word, std::uint32_t value);

}  // namespace paceline::cuda
