#include "cuda/calls/device_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/call.h"
#include "base/rounding.h"
#include "cuda/calls/exchange.h"
#include "schedule/extent_map.h"
#include "tuning/choice.h"

namespace paceline::cuda {
namespace {

// Lanes of a block that together hold `capacity(n)` messages to a rank.
int lanes_of_block(const WindowLayout& layout, int ranks) {
  return static_cast<int>(divided_up(static_cast<unsigned>(capacity(ranks)), layout.chunk_slots));
}

// Blocks that each of so many channels can have.
int most_blocks(const WindowLayout& layout, int ranks, int channels, const Spreading& spreading) {
  return std::max(1,
                  std::min(spreading.most_blocks / channels, max_lanes / (lanes_of_block(layout, ranks) * channels)));
}

std::uint64_t share_of(std::uint64_t bytes, int blocks, const Spreading& spreading) {
  return std::max(spreading.least_share, rounded_up(divided_up(bytes, static_cast<unsigned>(blocks)), 16));
}

// What steps of a channel have touched so far. Two steps that touch the very same region cut it alike: each block finds
// there what it left itself. For all other regions that overlap the blocks have to wait for each other.
class Touched {
 public:
  // Steps that must have been done by all blocks before one may read or write the region.
  [[nodiscard]] std::uint32_t before(const Extent& extent, bool writes) const {
    std::uint32_t after = 0;
    last_.visit_overlapping(extent, [&](const Extent& other, const Last& last) {
      if (other != extent) after = std::max({after, last.written, writes ? last.read : 0});
    });
    return after;
  }
  // number: of the step, from 1.
  void add(const Extent& extent, bool writes, std::uint32_t number) {
    Last& last = last_[extent];
    (writes ? last.written : last.read) = number;
  }

 private:
  struct Last {
    std::uint32_t read = 0;
    std::uint32_t written = 0;
  };
  ExtentMap<Last> last_;
};

// The steps of one channel, bound to bytes.
class Channel {
 public:
  Channel(Schedule& schedule, int rank, std::size_t element, int blocks, const Spreading& spreading)
      : schedule_(schedule), rank_(rank), element_(element), blocks_(blocks), spreading_(spreading) {}

  void add(const Step& step) {
    DeviceStep bound;
    bound.action = step.action;
    bound.own = step.own >= 0;
    bound.source_buffer = step.source.buffer;
    bound.target_buffer = step.target.buffer;
    bound.source = step.source.offset * element_;
    bound.target = step.target.offset * element_;
    bound.bytes = step.elements() * element_;
    bound.share = share_of(bound.bytes, blocks_, spreading_);
    for (const int peer : schedule_.peers(rank_, step))
      bound.peers = static_cast<std::uint16_t>(bound.peers | 1U << peer);
    bound.after = wait_of(step);
    if (bound.after != 0) steps_[bound.after - 1].awaited = true;
    steps_.push_back(bound);
  }
  [[nodiscard]] const std::vector<DeviceStep>& steps() const { return steps_; }

 private:
  std::uint32_t wait_of(const Step& step) {
    if (blocks_ == 1) return 0;
    const Extent source = extent_of(schedule_.problem(), rank_, step.source);
    const Extent target = extent_of(schedule_.problem(), rank_, step.target);
    std::uint32_t after = 0;
    if (step.reads()) after = touched_.before(source, false);
    if (step.writes()) after = std::max(after, touched_.before(target, true));
    const auto number = static_cast<std::uint32_t>(steps_.size()) + 1;
    if (step.reads()) touched_.add(source, false, number);
    if (step.writes()) touched_.add(target, true, number);
    if (after <= waited_) return 0;  // waited for already
    waited_ = after;
    return after;
  }

  Schedule& schedule_;
  int rank_;
  std::size_t element_;
  int blocks_;
  const Spreading& spreading_;
  Touched touched_;
  std::uint32_t waited_ = 0;
  std::vector<DeviceStep> steps_;
};

// What shapes chunks and trees. A step waits for flags and barriers, a few microseconds; rates are of many blocks over
// NVLink. Rough figures, not measured for walks.
CostModel model_of(std::size_t element, std::uint64_t largest_chunk) {
  CostModel model;
  model.start = model.chunk_start = 3;
  model.step = 2;
  model.partner = model.board = model.receiver = 0;
  model.bandwidth = 150e3;
  model.reduce_bandwidth = 300e3;
  model.copy_bandwidth = 600e3;
  model.duplex = 1;
  model.multicast_share = model.passing_share = 1;
  model.common_share = 0;
  model.element = element;
  model.largest_chunk = largest_chunk;
  return model;
}

// A copy that each block makes a share of.
Walk copy_walk(Stage stage, Buffer from, Buffer to, std::uint64_t target, std::uint64_t bytes,
               const Spreading& spreading, std::vector<DeviceStep>& steps) {
  Walk walk;
  walk.stage = stage;
  walk.blocks = static_cast<int>(std::clamp<std::uint64_t>(divided_up(bytes, spreading.least_share), 1,
                                                           static_cast<unsigned>(spreading.most_blocks)));
  walk.begins.fill(static_cast<std::uint32_t>(steps.size() + 1));
  walk.begins[0] = static_cast<std::uint32_t>(steps.size());
  DeviceStep step;
  step.source_buffer = from;
  step.target_buffer = to;
  step.target = target;
  step.bytes = bytes;
  step.share = share_of(bytes, walk.blocks, spreading);
  steps.push_back(step);
  return walk;
}

}  // namespace

Result<Walk> walk_of(Schedule& schedule, int rank, std::size_t element, std::uint64_t longest,
                     const Spreading& spreading, std::vector<DeviceStep>& steps) {
  const WindowLayout layout = WindowLayout::of(schedule.ranks());
  const std::span<const Step> all = schedule.steps(rank);
  Walk walk;
  walk.channels = schedule.channels();
  walk.lanes = lanes_of_block(layout, schedule.ranks());
  walk.blocks = static_cast<int>(std::clamp<std::uint64_t>(
      divided_up(longest, spreading.least_share), 1,
      static_cast<unsigned>(most_blocks(layout, schedule.ranks(), walk.channels, spreading))));
  std::vector<Channel> channels(static_cast<std::size_t>(walk.channels),
                                Channel(schedule, rank, element, walk.blocks, spreading));
  for (const Step& step : all) channels[step.channel].add(step);
  for (std::size_t c = 0; c < walk.begins.size(); ++c) {
    walk.begins[c] = static_cast<std::uint32_t>(steps.size());
    if (c >= channels.size()) continue;
    for (const DeviceStep& step : channels[c].steps()) {
      if (step.peers != 0 && step.share > layout.chunk_slot)
        return Status(Code::internal, fmt::format("a step of {} bytes is longer than {} chunks of the window",
                                                  step.bytes, walk.blocks));
      if (gives(step))
        walk.gives_to |= step.peers;
      else
        walk.takes_from |= step.peers;
      walk.waits = walk.waits || step.awaited;
      steps.push_back(step);
    }
  }
  return walk;
}

Result<DevicePlan> device_plan(const Request& request, int rank, int ranks, const Forced& forced,
                               const Spreading& spreading) {
  const Algorithm& algorithm = *forced.algorithm;
  const std::size_t element = size_of(request.type);
  const bool reduction = reduces(request.which);
  WalkTask call{};
  start(call, rank, ranks, request);
  if (reduction) set_operation(call, request);

  Problem problem = problem_of(request, ranks);
  const bool in_place = is_in_place(request, rank);
  // As on the host: an all-to-all does not work in place, and scaled input is a copy.
  const bool sets_aside = call.scales || (in_place && request.which == Collective::all_to_all);
  problem.in_place = in_place && !sets_aside;

  // A step has a slot of the window in each block; with more channels each has fewer blocks.
  std::optional<Schedule> schedule;
  for (int channels = 0; !schedule || schedule->channels() > channels;) {
    channels = schedule ? schedule->channels() : 1;
    const auto blocks = static_cast<unsigned>(most_blocks(call.layout, ranks, channels, spreading));
    CostModel model = model_of(element, std::uint64_t{call.layout.chunk_slot} * blocks);
    model.paths = forced.paths;
    auto choice = choose(problem, model, algorithm.name, forced.variant);
    if (!choice.ok()) return choice.status();
    schedule.emplace(problem, choice->parameters, rank);
    algorithm.write(*schedule);
    (void)schedule->steps(rank);  // ends the last round: all channels are known
  }

  DevicePlan plan;
  plan.algorithm = static_cast<std::uint8_t>(&algorithm - algorithms().data() + 1);
  const std::size_t most =
      std::max({std::size_t{1}, input_elements(problem, problem.root), output_elements(problem, problem.root)});
  const std::size_t chunk = std::min(schedule->parameters().chunk, most);
  plan.chunk_bytes = chunk * element;
  plan.radix = forced.variant.radix;
  plan.aside = rounded_up(schedule->scratch_elements(rank) * element, 256);
  plan.scratch_bytes = plan.aside;
  const std::uint64_t input = input_elements(problem, rank) * element;
  if (sets_aside && input != 0) {
    plan.scratch_bytes += rounded_up(input, 256);
    plan.walks.push_back(
        copy_walk(Stage::set_aside, Buffer::input, Buffer::scratch, plan.aside, input, spreading, plan.steps));
  }
  auto walk = walk_of(*schedule, rank, element, plan.chunk_bytes, spreading, plan.steps);
  if (!walk.ok()) return walk.status();
  if (walk->begins.front() != walk->begins.back()) plan.walks.push_back(*walk);
  const std::uint64_t output = output_elements(problem, rank) * element;
  if (call.divides != 0 && output != 0)
    plan.walks.push_back(copy_walk(Stage::divide, Buffer::output, Buffer::output, 0, output, spreading, plan.steps));
  return plan;
}

WalkTask task_of(const DevicePlan& plan, const Walk& walk, const Request& request, int rank, int ranks,
                 const PlanMemory& memory) {
  WalkTask task{};
  start(task, rank, ranks, request);
  if (reduces(request.which)) set_operation(task, request);
  task.call_what |= static_cast<std::uint32_t>(plan.algorithm) << algorithm_shift;
  const std::uint16_t way = way_of(algorithms()[plan.algorithm - 1U].name, plan.chunk_bytes, plan.radix);
  task.call_count = with_way(request.count, way);
  if (walk.stage != Stage::set_aside) task.scales = false;
  if (walk.stage != Stage::divide) task.divides = 0;
  task.steps = memory.steps;
  std::copy(walk.begins.begin(), walk.begins.end(), task.begins);
  const bool is_aside = walk.stage == Stage::schedule && plan.walks.front().stage == Stage::set_aside;
  task.buffers[static_cast<std::size_t>(Buffer::input)] =
      is_aside ? memory.scratch + plan.aside : const_cast<std::byte*>(request.send);
  task.buffers[static_cast<std::size_t>(Buffer::output)] = request.recv;
  task.buffers[static_cast<std::size_t>(Buffer::scratch)] = memory.scratch;
  task.progress = walk.waits ? memory.progress : nullptr;
  task.gives_to = walk.gives_to;
  task.takes_from = walk.takes_from;
  task.blocks = static_cast<std::uint8_t>(walk.blocks);
  task.lanes = static_cast<std::uint8_t>(walk.lanes);
  return task;
}

}  // namespace paceline::cuda
