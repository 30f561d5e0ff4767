// A build without CUDA copies nothing.
#include "cuda/driver/copy.h"

namespace paceline::cuda {

Status copy(void*, const void*, std::size_t, void*) {
  return {Code::unsupported, "this build of Paceline has no CUDA (PACELINE_CUDA=OFF)"};
}

Status refuse_capture(void*) { return {}; }

}  // namespace paceline::cuda
