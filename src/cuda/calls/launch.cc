#include "cuda/calls/launch.h"

#include <algorithm>

#include "base/rounding.h"
#include "cuda/calls/direct.h"

namespace paceline::cuda {
namespace {

int most_blocks(const GpuWay& way, int limit) { return way.blocks == 0 ? limit : std::min<int>(way.blocks, limit); }

// The way's, or the next one that has room for so many strips: some have no loop.
Form form_of(const GpuWay& way, std::uint32_t strips, int width) {
  const int blocks = most_blocks(way, strip_blocks);
  for (const Family family : {Family::brief, Family::wide})
    if (const Form form{family}; way.family <= family && form.has_room(strips, width, blocks)) return form;
  if (way.family != Family::deep) return {Family::streaming};
  const Form once{Family::deep, deep_once_stride};
  return once.has_room(strips, width, blocks) ? once : Form{Family::deep};
}

// Lanes for so many strips in rounds. A round of two ranks takes a warp so few instructions that many warps hinder each
// other at the link, unless they also wait for memory, since the L2 cache does not hold the message.
std::uint32_t enough_lanes(const Form& form, std::uint32_t strips, int width) {
  if (width > 1 || form.stride.strips > 1) return UINT32_MAX;
  return (strips <= (12 << 20) / strip_bytes ? 16 : 22) * max_blocks;
}

}  // namespace

GpuWay in_blocks(GpuWay way, int blocks) {
  way.blocks = static_cast<std::uint8_t>(most_blocks(way, blocks));
  return way;
}

Cut cut(std::uint64_t bytes, const WindowLayout& layout, bool short_chunks, const GpuWay& way) {
  constexpr std::uint64_t grain = 1024;
  const std::uint64_t share = rounded_up(bytes / (max_lanes * 2), grain);
  const std::uint64_t most =
      std::min<std::uint64_t>(layout.chunk_slot, short_chunks ? largest_short_chunk : largest_chunk);
  const std::uint64_t chunk = way.chunk == 0
                                  ? std::clamp<std::uint64_t>(share, 4 << 10, most)
                                  : std::clamp<std::uint64_t>(rounded_up(way.chunk, grain), 4 << 10, layout.chunk_slot);
  const std::uint64_t chunks = std::max<std::uint64_t>(1, divided_up(bytes, chunk));
  const std::uint64_t lanes = static_cast<std::uint64_t>(most_blocks(way, max_blocks)) * lanes_in_block;
  return {static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(std::min(chunks, lanes))};
}

Launch by_chunks(std::uint32_t lanes) {
  return {Family::large, static_cast<int>(divided_up(lanes, lanes_in_block)), 0};
}

std::uint32_t strips_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, divided_up(bytes, strip_bytes)));
}

Stride stride_of(Family family) {
  switch (family) {
    case Family::brief: return brief_stride;
    case Family::wide: return wide_stride;
    case Family::deep: return deep_stride;
    default: return streaming_stride;
  }
}

std::uint32_t Form::most_lanes(int width, int blocks) const {
  return static_cast<std::uint32_t>(std::min(strip_warps(stride, width == 1) / width, strip_lanes(width + 1) / blocks));
}

bool Form::has_room(std::uint32_t strips, int width, int blocks) const {
  return strips <= static_cast<unsigned>(blocks) * most_lanes(width, blocks) * static_cast<unsigned>(stride.strips);
}

Launch by_strips(const Form& form, std::uint32_t lanes, int width, int blocks, std::uint32_t in_block) {
  const auto limit = static_cast<std::uint32_t>(blocks);
  const std::uint32_t least = std::clamp<std::uint32_t>(4 / static_cast<unsigned>(width), 1, lanes);
  const std::uint32_t most = form.most_lanes(width, blocks);
  if (in_block == 0) {
    const std::uint32_t enough = std::min(limit * most, enough_lanes(form, lanes, width));
    const std::uint32_t rounds = form.stride.once ? 1 : (lanes + enough - 1) / enough;
    in_block = std::max((lanes + limit * rounds - 1) / (limit * rounds), least);
  }
  in_block = std::min({in_block, lanes, most});
  Launch launch;
  launch.family = form.family;
  launch.blocks = static_cast<int>(std::min(limit, (lanes + in_block - 1) / in_block));
  launch.threads = (static_cast<int>(in_block) * width + 1) * 32;
  launch.once = form.stride.once;
  return launch;
}

Launch by_strips(const GpuWay& way, std::uint32_t strips, int width) {
  const Form form = form_of(way, strips, width);
  const int blocks = most_blocks(way, strip_blocks);
  const auto at_once = static_cast<std::uint32_t>(form.stride.strips);
  if (!form.stride.once) {
    Launch launch = by_strips(form, (strips + at_once - 1) / at_once, width, blocks, way.lanes);
    if (strips > overlapped_strips) lay_in_clusters(launch);
    return launch;
  }
  // A lane has no more strips than it moves at once.
  const std::uint32_t room = static_cast<unsigned>(blocks) * at_once;
  const std::uint32_t needed = (strips + room - 1) / room;
  return by_strips(form, strips, width, blocks, way.lanes == 0 ? 0 : std::max<std::uint32_t>(way.lanes, needed));
}

void lay_in_clusters(Launch& launch) {
  if (launch.blocks % blocks_in_cluster == 0) launch.cluster = blocks_in_cluster;
}

}  // namespace paceline::cuda
