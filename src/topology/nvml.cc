#include "topology/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace paceline {
namespace {

// Of nvml.h: names, types and values as the documented, stable ABI has them.
using nvmlDevice_t = void*;
using nvmlReturn_t = int;
constexpr nvmlReturn_t success = 0;
constexpr unsigned most_links = 36;
constexpr unsigned switch_device = 2;  // NVML_NVLINK_DEVICE_TYPE_SWITCH

struct nvmlPciInfo_t {
  std::array<char, 16> legacy_bus_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const bool found = load(init, "nvmlInit_v2") && load(shutdown, "nvmlShutdown") &&
                       load(count, "nvmlDeviceGetCount_v2") && load(device, "nvmlDeviceGetHandleByIndex_v2") &&
                       load(pci, "nvmlDeviceGetPciInfo_v3") && load(capability, "nvmlDeviceGetCudaComputeCapability");
    // GPUs may be without NVLinks, and drivers without these.
    load(link_state, "nvmlDeviceGetNvLinkState");
    load(link_target, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    load(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    works_ = found && init() == success;
  }
  ~Nvml() {
    if (works_) shutdown();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  [[nodiscard]] bool works() const { return works_; }

  nvmlReturn_t (*init)() = nullptr;
  nvmlReturn_t (*shutdown)() = nullptr;
  nvmlReturn_t (*count)(unsigned*) = nullptr;
  nvmlReturn_t (*device)(unsigned, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*pci)(nvmlDevice_t, nvmlPciInfo_t*) = nullptr;
  nvmlReturn_t (*capability)(nvmlDevice_t, int*, int*) = nullptr;
  nvmlReturn_t (*link_state)(nvmlDevice_t, unsigned, unsigned*) = nullptr;
  nvmlReturn_t (*link_target)(nvmlDevice_t, unsigned, nvmlPciInfo_t*) = nullptr;
  nvmlReturn_t (*link_type)(nvmlDevice_t, unsigned, unsigned*) = nullptr;

 private:
  template <class Function>
  bool load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }
  void* library_;
  bool works_ = false;
};

std::string bus_id_of(nvmlPciInfo_t info) {
  info.bus_id.back() = '\0';
  return kernel_bus_id(info.bus_id.data());
}

std::vector<NvmlGpu::Nvlinks> nvlinks_of(const Nvml& nvml, nvmlDevice_t device) {
  std::vector<NvmlGpu::Nvlinks> links;
  if (nvml.link_state == nullptr || nvml.link_target == nullptr) return links;
  for (unsigned i = 0; i < most_links; ++i) {
    unsigned active = 0;
    nvmlPciInfo_t target{};
    if (nvml.link_state(device, i, &active) != success || active == 0) continue;
    if (nvml.link_target(device, i, &target) != success) continue;
    unsigned type = 0;
    if (nvml.link_type != nullptr) nvml.link_type(device, i, &type);
    const std::string bus_id = bus_id_of(target);
    auto found = std::ranges::find(links, bus_id, &NvmlGpu::Nvlinks::target);
    if (found == links.end()) found = links.insert(found, {bus_id, type == switch_device, 0});
    ++found->count;
  }
  return links;
}

}  // namespace

std::string kernel_bus_id(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::size_t colon = text.find(':');
  if (colon == 8 && text.starts_with("0000")) text.erase(0, 4);
  return text;
}

std::optional<std::vector<NvmlGpu>> nvml_gpus() {
  const Nvml nvml;
  unsigned count = 0;
  if (!nvml.works() || nvml.count(&count) != success) return std::nullopt;
  std::vector<NvmlGpu> gpus;
  for (unsigned i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    nvmlPciInfo_t info{};
    int major = 0;
    int minor = 0;
    // One that this process may not see is none.
    if (nvml.device(i, &device) != success || nvml.pci(device, &info) != success) continue;
    nvml.capability(device, &major, &minor);
    gpus.push_back({bus_id_of(info), 10 * major + minor, nvlinks_of(nvml, device)});
  }
  return gpus;
}

}  // namespace paceline
