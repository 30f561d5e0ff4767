// What a forwarded call of libnccl.so.2 costs beside a call of NCCL itself.
//
// The real library is one that does nothing (tests/nccl/fake_nccl.cc), so that only the way to it is timed: the same
// function called in it and through the door, in turns of 1,000,000 calls; the median of 15 turns each. Build:
//
//   g++ -O2 -std=c++20 -Iplugins bench/nccl_forward_bench.cc -o nccl_forward_bench -ldl
//   ./nccl_forward_bench build/wheel/nccl/libnccl.so.2 build/wheel/libfake_nccl.so
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "nccl/nccl_api.h"

namespace {

void* opened(const char* path) {
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    ::exit(1);
  }
  return library;
}

template <class Function>
Function function(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

struct Library {
  explicit Library(const char* path) {
    void* library = opened(path);
    all_reduce = function<decltype(&ncclAllReduce)>(library, "ncclAllReduce");
    group_start = function<decltype(&ncclGroupStart)>(library, "ncclGroupStart");
    group_end = function<decltype(&ncclGroupEnd)>(library, "ncclGroupEnd");
    send = function<decltype(&ncclSend)>(library, "ncclSend");
    const auto unique_id = function<decltype(&ncclGetUniqueId)>(library, "ncclGetUniqueId");
    const auto init = function<decltype(&ncclCommInitRank)>(library, "ncclCommInitRank");
    ncclUniqueId id{};
    if (unique_id(&id) != ncclSuccess || init(&comm, 2, id, 0) != ncclSuccess) ::exit(1);
  }
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  ncclComm_t comm = nullptr;
};

constexpr int calls = 1'000'000;

template <class Call>
double nanoseconds(Call call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <class Call>
void compare(const char* what, const Library& door, const Library& real, Call call) {
  std::vector<double> through, direct;
  for (int turn = 0; turn < 15; ++turn) {
    direct.push_back(nanoseconds([&] { call(real); }));
    through.push_back(nanoseconds([&] { call(door); }));
  }
  std::printf("%-36s direct %6.1f ns, through the door %6.1f ns: %5.1f ns more\n", what, median(direct),
              median(through), median(through) - median(direct));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: %s libnccl.so.2 libfake_nccl.so\n", arguments[0]);
    return 2;
  }
  ::setenv("PACELINE_NCCL_LIBRARY", arguments[2], 1);
  const Library real(arguments[2]);
  const Library door(arguments[1]);
  function<void (*)()>(opened(arguments[2]), "fakeNcclSilence")();
  float value = 0;
  compare("all_reduce", door, real, [&](const Library& library) {
    (void)library.all_reduce(&value, &value, 1, ncclFloat32, ncclSum, library.comm, nullptr);
  });
  compare("a group of one send", door, real, [&](const Library& library) {
    (void)library.group_start();
    (void)library.send(&value, 1, ncclFloat32, 1, library.comm, nullptr);
    (void)library.group_end();
  });
}
