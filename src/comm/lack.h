// What one rank alone cannot do in a call, the others must learn.
#pragma once

#include <cerrno>
#include <new>

#include "base/status.h"

namespace paceline {

// What a call does, its beginning or the rest. No memory is an error of its own, so that the other ranks learn of it
// (is_lack).
template <class Act>
Status done_by(const char* what, Act act) {
  try {
    return act();
  } catch (const std::bad_alloc&) {
    return Status::system(what, ENOMEM);
  }
}
template <class Begin>
Status begun_by(Begin begin) {
  return done_by("beginning a call", begin);
}

// Whether this rank alone cannot do what the others do: what is wrong with a call's arguments is wrong on all ranks.
inline bool is_lack(const Status& status) {
  return status.code() == Code::system || status.code() == Code::internal || status.code() == Code::cuda;
}

}  // namespace paceline
