// Whatever is read as NCCL's topology XML is an error or a valid topology, which can be written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "topology/nccl_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto topology = paceline::read_nccl_topology({reinterpret_cast<const char*>(data), size});
  if (!topology.ok()) return 0;
  if (!paceline::validate(*topology).ok()) std::abort();
  const auto xml = paceline::write_nccl_topology(*topology);
  if (xml.ok() && !paceline::read_nccl_topology(*xml).ok()) std::abort();
  return 0;
}
