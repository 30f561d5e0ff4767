// The NCCL door in this process, in front of the fake of fake_nccl.cc.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "comm/threads.h"
#include "nccl/nccl_api.h"
#include "nccl/real_library.h"
#include "nccl/services.h"

namespace paceline::testing {

inline const nccl::Real& fake() {
  static const nccl::Real* opened = [] {
    std::string why;
    const nccl::Real* library = nccl::open_real(PACELINE_FAKE_NCCL, why);
    REQUIRE_MESSAGE(library != nullptr, why);
    return library;
  }();
  return *opened;
}

template <class Function>
Function* of_fake(const char* name) {
  static void* handle = ::dlopen(fake().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(::dlsym(handle, name));
}

// A process with the fake for NCCL; `cuda` as paceDescribe("cuda") gives it, `forward` as PACELINE_NCCL_FORWARD.
class Door {
 public:
  explicit Door(const char* cuda = nullptr, const char* forward = nullptr, const nccl::Real* library = &fake(),
                const std::string& why = "there is no libnccl.so.2 in /nowhere") {
    nccl::replace_real(library, why);
    nccl::replace_choice(nccl::choose(forward, cuda));
    (void)calls();
  }
  ~Door() {
    nccl::replace_real(&fake(), {});
    nccl::replace_choice(nccl::choose(nullptr, nullptr));
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // What the fake was called with since the last question.
  static std::string calls() { return of_fake<const char*()>("fakeNcclCalls")(); }
};

inline constexpr const char* has_engine = "{}";

// The fake's function fails as long as this is there.
class Failing {
 public:
  Failing(const char* name, ncclResult_t code) : name_(name) { set(code); }
  ~Failing() { set(ncclSuccess); }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;

 private:
  void set(ncclResult_t code) { of_fake<void(const char*, int)>("fakeNcclFail")(name_, code); }
  const char* name_;
};

inline std::string last_error(ncclComm_t comm = nullptr) { return ncclGetLastError(comm); }

// One rank that NCCL serves alone.
inline ncclComm_t one_rank(int ranks = 2, int rank = 1) {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, ranks, id, rank) == ncclSuccess);
  return comm;
}

template <class Value>
Value* at(std::uintptr_t address) {
  return reinterpret_cast<Value*>(address);
}

}  // namespace paceline::testing
