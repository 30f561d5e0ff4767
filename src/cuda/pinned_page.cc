#include "cuda/pinned_page.h"

#include <sys/mman.h>

#include <cstring>

#include "cuda/driver/runtime.h"

namespace paceline::cuda {
namespace {

// Shared: a fork leaves this process the page that the GPUs know.
void* map_shared() {
  void* const page = ::mmap(nullptr, PinnedPage::bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : page;
}

bool pin(void* page, void*& on_gpu) {
  if (cudaHostRegister(page, PinnedPage::bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) != cudaSuccess)
    return false;
  if (cudaHostGetDevicePointer(&on_gpu, page, 0) == cudaSuccess) return true;
  (void)cudaHostUnregister(page);
  return false;
}

}  // namespace

Result<std::unique_ptr<PinnedPage>> PinnedPage::make() {
  std::unique_ptr<PinnedPage> made(new PinnedPage);
  if (void* const page = map_shared(); page != nullptr) {
    if (pin(page, made->on_gpu_)) {
      made->here_ = page;
      made->is_ours_ = true;
      return made;
    }
    ::munmap(page, bytes);
    (void)cudaGetLastError();
  }
  // Some sandboxes pin nothing but what the driver allocates.
  PACE_CUDA("allocating pinned memory", cudaHostAlloc(&made->here_, bytes, cudaHostAllocPortable));
  UntilExit::begin();  // CUDA's own exit handlers are registered by now: they come after
  made->on_gpu_ = made->here_;
  std::memset(made->here_, 0, bytes);
  return made;
}

PinnedPage::~PinnedPage() {
  if (here_ == nullptr) return;
  if (!is_ours_) {
    (void)cudaFreeHost(here_);
    return;
  }
  (void)cudaHostUnregister(here_);
  ::munmap(here_, bytes);
}

}  // namespace paceline::cuda
