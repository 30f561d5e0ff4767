#include "device_context.h"

#include <dlfcn.h>

namespace paceline::nccl {
namespace {

// Of the driver's API (cuda.h): 0 is success, contexts are opaque.
struct Driver {
  int (*get_current)(void** context) = nullptr;
  int (*set_current)(void* context) = nullptr;
  int (*get_device)(int* device) = nullptr;
  int (*retain_primary)(void** context, int device) = nullptr;

  Driver() {
    // NOLOAD: a program that uses GPUs has it, and nobody else needs it.
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return;
    load(get_current, library, "cuCtxGetCurrent");
    load(set_current, library, "cuCtxSetCurrent");
    load(get_device, library, "cuCtxGetDevice");
    load(retain_primary, library, "cuDevicePrimaryCtxRetain");
  }
  template <class Function>
  static void load(Function& function, void* library, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

}  // namespace

DeviceContext DeviceContext::current() {
  DeviceContext here;
  if (driver().get_current != nullptr && driver().get_current(&here.context_) == 0 && here.context_ != nullptr)
    (void)driver().get_device(&here.device_);
  return here;
}

DeviceContext DeviceContext::of_device(int device) {
  DeviceContext there;
  if (driver().retain_primary != nullptr && driver().retain_primary(&there.context_, device) == 0)
    there.device_ = device;
  return there;
}

void DeviceContext::enter() const {
  if (context_ != nullptr) (void)driver().set_current(context_);
}

}  // namespace paceline::nccl
