// A stand-in for the CUDA driver with eight devices: each thread has a current context, and device d's is d + 1.
#include <cstdint>

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
  constexpr int invalid_device = 101;
  if (device < 0 || device >= 8) return invalid_device;
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(device) + 1);
  return 0;
}

}  // extern "C"
