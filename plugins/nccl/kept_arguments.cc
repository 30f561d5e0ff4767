#include "kept_arguments.h"

#include <cstddef>
#include <cstring>
#include <deque>
#include <vector>

#include "group.h"
#include "real_library.h"
#include "requirements_layout.h"

namespace paceline::nccl {
namespace {

// What all versions of ncclDevCommRequirements have in common.
struct Head {
  std::size_t size;
  unsigned magic;
  unsigned version;
};
struct Node {
  Node* next;
};
struct Lists {
  Node* resources;
  Node* teams;
};

constexpr std::size_t largest_requirements = 4096;

// 0: they are none, which is NCCL's to say, or of a version that is not known here.
std::size_t size_of(const ncclDevCommRequirements_t* wanted, const RequirementsLayout& layout) {
  if (layout.resource == 0 || layout.size != 0) return layout.size;
  Head head{};
  std::memcpy(&head, wanted, sizeof head);
  const bool is_one = head.magic == NCCL_API_MAGIC && head.size >= layout.lists + sizeof(Lists);
  return is_one && head.size <= largest_requirements ? head.size : 0;
}

using Bytes = std::vector<std::byte>;

Bytes copied(const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  return {bytes, bytes + size};
}

struct Requirements {
  std::deque<Bytes> parts;  // the requirements, and their lists' nodes

  // A list's nodes, and the pointers to them.
  void copy_list(Node*& first, std::size_t size) {
    for (Node** link = &first; *link != nullptr; link = &(*link)->next)
      *link = reinterpret_cast<Node*>(parts.emplace_back(copied(*link, size)).data());
  }
};

}  // namespace

Kept keep_for_group(ncclComm_t, const ncclDevCommRequirements_t*& wanted, ncclDevComm_t*) {
  if (group().depth == 0 || wanted == nullptr || real() == nullptr) return {};
  const RequirementsLayout layout = requirements_layout(real()->version);
  const std::size_t size = size_of(wanted, layout);
  if (size == 0) return {};
  auto kept = std::make_shared<Requirements>();
  std::byte* const copy = kept->parts.emplace_back(copied(wanted, size)).data();
  auto* const lists = reinterpret_cast<Lists*>(copy + layout.lists);
  kept->copy_list(lists->resources, layout.resource);
  kept->copy_list(lists->teams, layout.team);
  wanted = reinterpret_cast<const ncclDevCommRequirements_t*>(copy);
  return kept;
}

Kept keep_for_group(int count, ncclWaitSignalDesc_t*& signals, ncclComm_t, cudaStream_t) {
  if (group().depth == 0 || signals == nullptr || count <= 0) return {};
  auto kept = std::make_shared<std::vector<ncclWaitSignalDesc_t>>(signals, signals + count);
  signals = kept->data();
  return kept;
}

}  // namespace paceline::nccl
