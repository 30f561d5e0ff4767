#include "real_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "search.h"

namespace paceline::nccl {
namespace {

// Whether the process has the C library's allocator. Under another one (jemalloc, a sanitizer's) RTLD_DEEPBIND would
// bind NCCL's free() to the C library, whose own realpath() and strdup() take their memory from the other.
bool allocates_as_libc() {
  void* libc = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return false;
  const bool same = ::dlsym(RTLD_DEFAULT, "free") == ::dlsym(libc, "free");
  ::dlclose(libc);
  return same;
}

struct Chosen {
  std::once_flag once;
  std::atomic<const Real*> library{nullptr};
  std::atomic<bool> made{false};
  std::string why;
};

Chosen& chosen() {
  static auto* choice = new Chosen;  // for threads that outlive main()
  return *choice;
}

void choose() {
  const Found found = find_real();
  Chosen& choice = chosen();
  choice.why = found.why;
  const Real* library = nullptr;
  for (const std::string& path : found.paths)
    if (library = open_real(path, choice.why); library != nullptr) break;
  if (library != nullptr) choice.why.clear();
  // Release: the pointers in the library, and the reason, come before them.
  choice.library.store(library, std::memory_order_release);
  choice.made.store(true, std::memory_order_release);
}

}  // namespace

const Real* open_real(const std::string& path, std::string& why) {
  if (is_ourselves(path)) {
    why = path + " is Paceline's own library, not NCCL's";
    return nullptr;
  }
  const int own_symbols_first = allocates_as_libc() ? RTLD_DEEPBIND : 0;
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | own_symbols_first);
  if (handle == nullptr) {
    why = fmt::format("{} does not load: {}", path, ::dlerror());
    return nullptr;
  }
  if (::dlsym(handle, "paceNcclDescribe") != nullptr) {
    ::dlclose(handle);
    why = path + " is another copy of Paceline's library, not NCCL's";
    return nullptr;
  }
  auto* library = new Real;  // for the life of the process, as the library
  library->path = path;
#define PACE_NCCL_LOAD(since, result, name, parameters, arguments) \
  library->name = reinterpret_cast<decltype(library->name)>(::dlsym(handle, #name));
  PACE_NCCL_FUNCTIONS(PACE_NCCL_LOAD)
#undef PACE_NCCL_LOAD
  if (library->ncclGetVersion == nullptr || library->ncclGetUniqueId == nullptr ||
      library->ncclCommInitRankConfig == nullptr || library->ncclGetVersion(&library->version) != ncclSuccess) {
    why = path + " is no NCCL of version 2.14 or later";
    delete library;
    ::dlclose(handle);
    return nullptr;
  }
  return library;
}

const Real* real() {
  Chosen& choice = chosen();
  // Acquire: pairs with the store of choose().
  if (const Real* library = choice.library.load(std::memory_order_acquire); library != nullptr) [[likely]]
    return library;
  std::call_once(choice.once, choose);
  return choice.library.load(std::memory_order_acquire);  // as above; call_once orders the rest
}

const std::string& why_no_real() {
  (void)real();
  return chosen().why;
}

bool real_in_reach() {
  // Acquire: pairs with the store of choose(); the library comes before.
  return chosen().made.load(std::memory_order_acquire) ? real() != nullptr : !find_real().paths.empty();
}

void replace_real(const Real* library, std::string why) {
  Chosen& choice = chosen();
  std::call_once(choice.once, [] {});
  choice.why = std::move(why);
  // Release: as in choose().
  choice.library.store(library, std::memory_order_release);
  choice.made.store(true, std::memory_order_release);
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace paceline::nccl
