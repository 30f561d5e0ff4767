#include "topology/topology_text.h"

#include "topology/cluster_file.h"
#include "topology/nccl_xml.h"

namespace paceline {

Result<Topology> read_topology(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  const bool is_xml = begin != std::string_view::npos && text[begin] == '<';
  return is_xml ? read_nccl_topology(text) : read_cluster(text);
}

}  // namespace paceline
