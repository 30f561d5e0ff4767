#include "cuda/driver/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <mutex>

#include "base/fork_hold.h"

namespace paceline::cuda {
namespace {

// The driver's functions and numbers as cuda.h has them; the library is never linked.
using Result = int;
constexpr int attribute_memory_type = 2;
constexpr int attribute_buffer_id = 7;
constexpr int attribute_is_managed = 8;
constexpr int attribute_device_ordinal = 9;
constexpr int attribute_has_ipc = 10;
constexpr int attribute_range_start = 11;
constexpr int attribute_range_size = 12;
constexpr unsigned enable_peer_access = 1;
constexpr unsigned wait_until_reached = 0;  // counting in a circle
constexpr unsigned memory_of_device = 2;
constexpr std::uintptr_t last_default_stream = 2;  // NULL, the legacy one and that of the thread

struct Driver {
  void* library;
  Result (*pointer_attributes)(unsigned count, int* attributes, void** data, unsigned long long pointer) = nullptr;
  Result (*device_count)(int* count) = nullptr;
  Result (*device_get)(int* device, int ordinal) = nullptr;
  Result (*device_name)(char* name, int length, int device) = nullptr;
  Result (*context_state)(int device, unsigned* flags, int* active) = nullptr;

  Result (*context_now)(void** context) = nullptr;
  Result (*device_now)(int* device) = nullptr;
  Result (*retain_context)(void** context, int device) = nullptr;
  Result (*release_context)(int device) = nullptr;
  Result (*push_context)(void* context) = nullptr;
  Result (*pop_context)(void** context) = nullptr;
  Result (*stream_device)(void* stream, int* device) = nullptr;
  Result (*wait_value)(void* stream, unsigned long long word, std::uint32_t value, unsigned flags) = nullptr;
  Result (*ipc_get)(IpcHandle* handle, unsigned long long pointer) = nullptr;
  Result (*ipc_open)(void** memory, IpcHandle handle, unsigned flags) = nullptr;
  Result (*ipc_close)(unsigned long long pointer) = nullptr;

  explicit Driver(void* its_library) : library(its_library) {
    find(library, "cuStreamGetDevice", stream_device);
    find(library, "cuStreamWaitValue32_v2", wait_value);
    find(library, "cuIpcGetMemHandle", ipc_get);
    find(library, "cuIpcOpenMemHandle_v2", ipc_open);
    find(library, "cuIpcCloseMemHandle", ipc_close);
    find(library, "cuPointerGetAttributes", pointer_attributes);
    find(library, "cuDeviceGetCount", device_count);
    find(library, "cuDeviceGet", device_get);
    find(library, "cuDeviceGetName", device_name);
    find(library, "cuDevicePrimaryCtxGetState", context_state);
    find(library, "cuCtxGetCurrent", context_now);
    find(library, "cuCtxGetDevice", device_now);
    find(library, "cuDevicePrimaryCtxRetain", retain_context);
    find(library, "cuDevicePrimaryCtxRelease_v2", release_context);
    find(library, "cuCtxPushCurrent_v2", push_context);
    find(library, "cuCtxPopCurrent_v2", pop_context);
  }
  template <class Function>
  static void find(void* library, const char* name, Function*& into) {
    into = reinterpret_cast<Function*>(::dlsym(library, name));
  }
};

// How many libraries this process has loaded so far. Asking takes 10 ns; looking for one that is not loaded, which goes
// through the file system, 20 us.
unsigned long long libraries_loaded() {
  unsigned long long loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* first, std::size_t, void* into) {
        *static_cast<unsigned long long*>(into) = first->dlpi_adds;
        return 1;  // no more
      },
      &loaded);
  return loaded;
}

// A fork while another thread is inside dlopen leaves a child that cannot call it.
std::mutex loading;
const HeldWhileForking<loading> held_while_forking;

const Driver* driver() {
  static std::atomic<const Driver*> found{nullptr};
  static std::atomic<unsigned long long> missing_among{0};  // so many libraries; 0: not looked yet
  // Acquire: the functions come before the pointer to them.
  if (const Driver* known = found.load(std::memory_order_acquire)) return known;
  const unsigned long long loaded = libraries_loaded();
  // Relaxed: a number that nothing hangs on but whether to look again.
  if (missing_among.load(std::memory_order_relaxed) == loaded) return nullptr;
  const std::lock_guard lock(loading);
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    missing_among.store(loaded, std::memory_order_relaxed);
    return nullptr;
  }
  static const Driver once(library);
  found.store(&once, std::memory_order_release);  // after the functions
  return &once;
}

}  // namespace

bool driver_loaded() { return driver() != nullptr; }

void* driver_function(const char* name) {
  const Driver* const known = driver();
  return known == nullptr ? nullptr : ::dlsym(known->library, name);
}

int device_of(const void* pointer) {
  const Driver* const known = driver();
  if (known == nullptr || known->pointer_attributes == nullptr || pointer == nullptr) return -1;
  unsigned type = 0;
  int ordinal = -1;
  int attributes[] = {attribute_memory_type, attribute_device_ordinal};
  void* data[] = {&type, &ordinal};
  if (known->pointer_attributes(2, attributes, data, reinterpret_cast<unsigned long long>(pointer)) != 0) return -1;
  return type == memory_of_device ? ordinal : -1;
}

bool is_shared_with(int device, const void* memory_of_another, void* stream) {
  const Driver* const known = driver();
  if (known == nullptr || known->pointer_attributes == nullptr) return false;
  int managed = 0;
  int attribute = attribute_is_managed;
  void* data = &managed;
  if (known->pointer_attributes(1, &attribute, &data, reinterpret_cast<unsigned long long>(memory_of_another)) == 0 &&
      managed != 0)
    return true;
  return device_of_stream(stream) == device;
}

int device_of_stream(void* stream) {
  const Driver* const known = driver();
  int its = -1;
  int count = 0;
  if (reinterpret_cast<std::uintptr_t>(stream) <= last_default_stream || known == nullptr ||
      known->stream_device == nullptr || known->stream_device(stream, &its) != 0 || known->device_count(&count) != 0)
    return -1;
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (int number = -1; known->device_get(&number, ordinal) == 0 && number == its) return ordinal;
  return -1;
}

OnDevice::OnDevice(int device) {
  const Driver* const known = driver();
  int wanted = -1;
  if (known == nullptr || known->push_context == nullptr || known->device_get(&wanted, device) != 0) return;
  void* context = nullptr;
  int now = -1;
  if (known->context_now(&context) == 0 && context != nullptr && known->device_now(&now) == 0 && now == wanted) return;
  if (known->retain_context(&context, wanted) != 0) return;
  if (known->push_context(context) == 0)
    entered_ = wanted;
  else
    (void)known->release_context(wanted);
}

OnDevice::~OnDevice() {
  if (entered_ < 0) return;
  void* context = nullptr;
  (void)driver()->pop_context(&context);
  (void)driver()->release_context(entered_);
}

Allocation allocation_of(std::uint64_t address) {
  Allocation allocation;
  const Driver* const known = driver();
  if (known == nullptr || known->pointer_attributes == nullptr) return allocation;
  int has_ipc = 0;
  unsigned long long base = 0;
  std::size_t bytes = 0;
  unsigned long long id = 0;
  int device = -1;
  int attributes[] = {attribute_buffer_id, attribute_has_ipc, attribute_range_start, attribute_range_size,
                      attribute_device_ordinal};
  void* data[] = {&id, &has_ipc, &base, &bytes, &device};
  if (known->pointer_attributes(5, attributes, data, address) != 0) return allocation;
  return {base, bytes, id, has_ipc != 0, device};
}

bool ipc_handle(std::uint64_t base, IpcHandle& into) {
  const Driver* const known = driver();
  return known != nullptr && known->ipc_get != nullptr && known->ipc_get(&into, base) == 0;
}

void* ipc_open(const IpcHandle& handle) {
  const Driver* const known = driver();
  void* memory = nullptr;
  if (known == nullptr || known->ipc_open == nullptr || known->ipc_open(&memory, handle, enable_peer_access) != 0)
    return nullptr;
  return memory;
}

void ipc_close(void* memory) {
  const Driver* const known = driver();
  if (known != nullptr && known->ipc_close != nullptr) known->ipc_close(reinterpret_cast<unsigned long long>(memory));
}

std::string name_of(int device) {
  const Driver* const known = driver();
  int number = 0;
  std::array<char, 128> name{};
  if (known == nullptr || known->device_name == nullptr || known->device_get(&number, device) != 0 ||
      known->device_name(name.data(), static_cast<int>(name.size()) - 1, number) != 0)
    return "";
  return name.data();
}

bool wait_for_word(void* stream, std::uint64_t word, std::uint32_t value) {
  const Driver* const known = driver();
  return known != nullptr && known->wait_value != nullptr &&
         known->wait_value(stream, word, value, wait_until_reached) == 0;
}

bool in_use() {
  const Driver* const known = driver();
  int count = 0;
  if (known == nullptr || known->device_count == nullptr || known->device_count(&count) != 0) return false;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    unsigned flags = 0;
    int active = 0;
    if (known->device_get(&device, ordinal) == 0 && known->context_state(device, &flags, &active) == 0 && active != 0)
      return true;
  }
  return false;
}

}  // namespace paceline::cuda
