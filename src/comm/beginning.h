// How a call begins: what one rank alone cannot do, the others must learn.
#pragma once

#include <cerrno>
#include <new>

#include "base/status.h"

namespace paceline {

// A call's beginning. No memory is an error of its own, so that the other ranks learn of it (is_lack).
template <class Begin>
Status begun_by(Begin begin) {
  try {
    return begin();
  } catch (const std::bad_alloc&) {
    return Status::system("beginning a call", ENOMEM);
  }
}

// Whether this rank alone cannot do what the others do: what is wrong with a call's arguments is wrong on all ranks.
inline bool is_lack(const Status& status) {
  return status.code() == Code::system || status.code() == Code::internal || status.code() == Code::cuda;
}

}  // namespace paceline
