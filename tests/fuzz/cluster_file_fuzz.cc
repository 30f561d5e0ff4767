// Whatever is read as a cluster file is an error or a valid topology.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "topology/cluster_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto topology = paceline::read_cluster({reinterpret_cast<const char*>(data), size});
  if (topology.ok() && !paceline::validate(*topology).ok()) std::abort();
  return 0;
}
