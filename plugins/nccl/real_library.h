// The NCCL that this library stands before: its functions, loaded from its own file.
//
// It is opened by absolute path (by its name the loader would give ourselves back) with RTLD_LOCAL | RTLD_DEEPBIND: its
// calls of its own functions stay inside it. Where the process has another allocator than the C library's, which
// RTLD_DEEPBIND would part it from, they come to us first and go on to it: its communicators are none of ours
// (is_nccls), and what it calls without one (ncclMemAlloc, ncclGetUniqueId in ncclCommInitAll) is forwarded.
#pragma once

#include <string>

#include "nccl_api.h"

namespace paceline::nccl {

struct Real {
#define PACE_NCCL_POINTER(since, result, name, parameters, arguments) decltype(&::name) name = nullptr;
  PACE_NCCL_FUNCTIONS(PACE_NCCL_POINTER)  // nullptr: this version has none
#undef PACE_NCCL_POINTER
  std::string path;
  int version = 0;  // 22809 is 2.28.9
};

// Opens a library. nullptr, and why, where it is none, is one of ours, or lacks the functions of a communicator.
const Real* open_real(const std::string& path, std::string& why);

// The process's one, found (search.h) and opened at first use. nullptr: there is none, for the reason of why_no_real().
const Real* real();
const std::string& why_no_real();

// Whether a file is there to be opened, without opening it: 250 MB and a CUDA runtime.
bool real_in_reach();

// For tests: use this one (nullptr: none, and why) from now on.
void replace_real(const Real* library, std::string why);

// 22809 as "2.28.9".
std::string version_text(int version);

}  // namespace paceline::nccl
