#include "comm/host_copies.h"

#include <algorithm>
#include <utility>

#include "cuda/driver/copy.h"
#include "schedule/problem.h"

namespace paceline {
namespace {

std::uintptr_t address_of(const std::byte* buffer) { return reinterpret_cast<std::uintptr_t>(buffer); }

}  // namespace

void HostCopies::add(const Request& request, void* stream, int rank, int ranks) {
  const Problem problem = problem_of(request, ranks);
  const std::size_t element = size_of(request.type);
  Call call{.request = request, .stream = stream};
  if (request.which != Collective::recv) call.input_bytes = input_elements(problem, rank) * element;
  if (request.which != Collective::send) call.output_bytes = output_elements(problem, rank) * element;
  calls_.push_back(call);
}

Status HostCopies::reserve() {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  const auto use = [&](const std::byte* buffer, std::size_t bytes) {
    if (bytes != 0) ranges.emplace_back(address_of(buffer), address_of(buffer) + bytes);
  };
  for (const Call& call : calls_) {
    use(call.request.send, call.input_bytes);
    use(call.request.recv, call.output_bytes);
  }
  std::ranges::sort(ranges);
  blocks_.clear();
  for (const auto& [begin, end] : ranges) {
    if (blocks_.empty() || begin >= blocks_.back().end) blocks_.emplace_back().begin = begin;
    blocks_.back().end = std::max(blocks_.back().end, end);
  }
  for (Block& block : blocks_) {
    const std::size_t within_line = block.begin % 64;  // so that elements are aligned as they are on the GPU
    auto memory = block.memory.reserve(within_line + (block.end - block.begin));
    PACE_TRY(memory.status());
    block.copy = *memory + within_line;
  }
  return {};
}

std::byte* HostCopies::copy_of(const std::byte* buffer, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  const auto behind = std::ranges::upper_bound(blocks_, address_of(buffer), {}, &Block::begin);
  const Block& block = *std::prev(behind);
  return block.copy + (address_of(buffer) - block.begin);
}

Status HostCopies::load() {
  for (const Call& call : calls_) PACE_TRY(cuda::refuse_capture(call.stream));
  PACE_TRY(reserve());
  for (const Call& call : calls_)
    if (call.input_bytes != 0)
      PACE_TRY(
          cuda::copy(copy_of(call.request.send, call.input_bytes), call.request.send, call.input_bytes, call.stream));
  return {};
}

Request HostCopies::on_host(std::size_t number) const {
  const Call& call = calls_[number];
  Request request = call.request;
  request.send = copy_of(request.send, call.input_bytes);
  request.recv = copy_of(request.recv, call.output_bytes);
  return request;
}

Status HostCopies::store(std::size_t number) {
  const Call& call = calls_[number];
  if (call.output_bytes == 0) return {};
  return cuda::copy(call.request.recv, copy_of(call.request.recv, call.output_bytes), call.output_bytes, call.stream);
}

}  // namespace paceline
