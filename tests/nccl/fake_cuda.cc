// A stand-in for the CUDA driver with eight devices: each thread has a current context, and device d's is d + 1. The
// one that FAKE_CUDA_FULL names has no memory left.
#include <cstdint>
#include <cstdlib>

namespace {
thread_local void* current = nullptr;
}

extern "C" {

__attribute__((visibility("default"))) int cuCtxGetCurrent(void** context) {
  *context = current;
  return 0;
}
__attribute__((visibility("default"))) int cuCtxSetCurrent(void* context) {
  current = context;
  return 0;
}
__attribute__((visibility("default"))) int cuCtxGetDevice(int* device) {
  *device = static_cast<int>(reinterpret_cast<std::intptr_t>(current)) - 1;
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = 8;
  return 0;
}
__attribute__((visibility("default"))) int cuDevicePrimaryCtxGetState(int /*device*/, unsigned* flags, int* active) {
  *flags = 0;
  *active = 0;
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
// A stream is the number of its device.
__attribute__((visibility("default"))) int cuStreamGetDevice(void* stream, int* device) {
  *device = *static_cast<const int*>(stream);
  return 0;
}
__attribute__((visibility("default"))) int cuDevicePrimaryCtxRetain(void** context, int device) {
  constexpr int out_of_memory = 2;
  constexpr int invalid_device = 101;
  if (device < 0 || device >= 8) return invalid_device;
  if (const char* const full = std::getenv("FAKE_CUDA_FULL"); full != nullptr && *full - '0' == device)
    return out_of_memory;
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(device) + 1);
  return 0;
}

}  // extern "C"
