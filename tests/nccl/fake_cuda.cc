// A stand-in for the CUDA driver with eight devices: each thread has a current context, and device d's is d + 1. The
// one that FAKE_CUDA_FULL names has no memory left.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace {
thread_local void* current = nullptr;
thread_local std::vector<void*> behind;  // the current one
std::atomic<int> retained = 0;
}  // namespace

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
  ++retained;
  return 0;
}
__attribute__((visibility("default"))) int cuDevicePrimaryCtxRelease_v2(int /*device*/) {
  --retained;
  return 0;
}
__attribute__((visibility("default"))) int cuCtxPushCurrent_v2(void* context) {
  behind.push_back(current);
  current = context;
  return 0;
}
__attribute__((visibility("default"))) int cuCtxPopCurrent_v2(void** context) {
  *context = current;
  current = behind.back();
  behind.pop_back();
  return 0;
}
// For tests alone: how many primary contexts were retained and not released.
__attribute__((visibility("default"))) int fake_cuda_retained() { return retained; }

}  // extern "C"
