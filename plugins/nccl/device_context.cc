#include "device_context.h"

#include <dlfcn.h>

#include <atomic>

namespace paceline::nccl {
namespace {

// Of the driver's API (cuda.h): 0 is success, contexts are opaque.
constexpr int attribute_memory_type = 2;
constexpr unsigned memory_of_device = 2;
struct Driver {
  int (*get_current)(void** context) = nullptr;
  int (*set_current)(void* context) = nullptr;
  int (*get_device)(int* device) = nullptr;
  int (*count)(int* devices) = nullptr;
  int (*retain_primary)(void** context, int device) = nullptr;
  int (*pointer_attributes)(unsigned count, int* attributes, void** data, unsigned long long pointer) = nullptr;

  explicit Driver(void* library) {
    load(get_current, library, "cuCtxGetCurrent");
    load(set_current, library, "cuCtxSetCurrent");
    load(get_device, library, "cuCtxGetDevice");
    load(count, library, "cuDeviceGetCount");
    load(retain_primary, library, "cuDevicePrimaryCtxRetain");
    load(pointer_attributes, library, "cuPointerGetAttributes");
  }
  template <class Function>
  static void load(Function& function, void* library, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }
};

// nullptr until the process has the driver: a program that uses GPUs loads it, and nobody else needs it.
const Driver* driver() {
  static std::atomic<const Driver*> loaded{nullptr};
  // Acquire: the pointers in it come before it.
  if (const Driver* known = loaded.load(std::memory_order_acquire); known != nullptr) return known;
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  static const Driver first(library);
  if (first.get_current == nullptr || first.set_current == nullptr || first.get_device == nullptr ||
      first.count == nullptr || first.retain_primary == nullptr || first.pointer_attributes == nullptr)
    return nullptr;
  loaded.store(&first, std::memory_order_release);  // after the pointers in it
  return &first;
}

}  // namespace

DeviceContext DeviceContext::current() {
  DeviceContext here;
  const Driver* const cuda = driver();
  if (cuda != nullptr && cuda->get_current(&here.context_) == 0 && here.context_ != nullptr)
    (void)cuda->get_device(&here.device_);
  return here;
}

int DeviceContext::devices() {
  int count = 0;
  const Driver* const cuda = driver();
  return cuda != nullptr && cuda->count(&count) == 0 ? count : 0;
}

DeviceContext DeviceContext::of_device(int device) {
  DeviceContext there;
  const Driver* const cuda = driver();
  if (cuda != nullptr && cuda->retain_primary(&there.context_, device) == 0) there.device_ = device;
  return there;
}

void DeviceContext::enter() const {
  if (context_ != nullptr) (void)driver()->set_current(context_);
}

void DeviceContext::restore() const {
  if (const Driver* const cuda = driver(); cuda != nullptr) (void)cuda->set_current(context_);
}

bool is_gpu_memory(const void* buffer) {
  const Driver* const cuda = driver();
  unsigned type = 0;
  int attribute = attribute_memory_type;
  void* data = &type;
  return cuda != nullptr &&
         cuda->pointer_attributes(1, &attribute, &data, reinterpret_cast<unsigned long long>(buffer)) == 0 &&
         type == memory_of_device;
}

}  // namespace paceline::nccl
