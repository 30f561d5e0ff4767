// Direct collectives are run here, of bytes, by a stand-in for the kernel: each rank moves its stretches between all
// ranks' buffers.
#include "cuda/calls/direct.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/calls/byte_buffers.h"

namespace paceline::cuda {
namespace {

constexpr int ranks_most = 8;

// Where a rank's own stretches are among those of a plan; elsewhere none is.
bool is_own(const Case& c, const DirectPlan& plan, int index, int rank) {
  if (plan.folding == Folding::passed && c.which == Collective::reduce) return rank == c.root && index == c.ranks - 1;
  return !reduces(c.which) || index == rank;
}

// False: not a call for this.
bool run(const Case& c, Folding folding, Buffers& buffers) {
  bool possible = true;
  for (int rank = 0; rank < c.ranks; ++rank) {
    Request request;
    request.which = c.which;
    request.count = c.count;
    request.root = c.root;
    request.type = DataType::uint8;
    const auto plan = std::make_unique<DirectPlan>(plan_direct(request, rank, c.ranks, folding));
    possible = possible && plan->possible;
    REQUIRE(plan->folding == (reduces(c.which) ? folding : Folding::loaded));
    if (plan->folding == Folding::pushed) REQUIRE(plan->blocks == 2 * plan->link_blocks);
    REQUIRE(plan->link_blocks > 0);
    REQUIRE(plan->link_blocks <= plan->blocks);
    REQUIRE(plan->blocks == plan_direct(request, 0, c.ranks, folding).blocks);
    REQUIRE(plan->blocks <= max_blocks);
    REQUIRE(plan->blocks % plan->cluster == 0);
    // What a rank keeps of its own is copied by blocks that stay off the link.
    for (int i = 0; i < plan->count; ++i)
      if (const std::uint32_t self = 1U << rank; plan->stretches[i].from == self && (plan->stretches[i].to & self) != 0)
        REQUIRE((plan->blocks > plan->link_blocks || plan->stretches[i].to == self));
    for (int i = 0; i < plan->count; ++i) {
      if (!is_own(c, *plan, i, rank)) continue;
      const Stretch& stretch = plan->stretches[i];
      REQUIRE((!goes_evenly(request) || (stretch.input | stretch.output | stretch.bytes) % 16 == 0));
      std::vector<std::byte> moved(stretch.bytes);
      for (int from = 0; from < c.ranks; ++from) {
        if ((stretch.from >> from & 1) == 0) continue;
        const auto& input = buffers.inputs[static_cast<std::size_t>(from)];
        REQUIRE(stretch.input + stretch.bytes <= input.size());
        for (std::size_t b = 0; b < stretch.bytes; ++b)
          moved[b] =
              static_cast<std::byte>(static_cast<unsigned>(moved[b]) + static_cast<unsigned>(input[stretch.input + b]));
      }
      for (int to = 0; to < c.ranks; ++to) {
        if ((stretch.to >> to & 1) == 0) continue;
        auto& output = buffers.outputs[static_cast<std::size_t>(to)];
        REQUIRE(stretch.output + stretch.bytes <= output.size());
        std::copy(moved.begin(), moved.end(), output.begin() + static_cast<std::ptrdiff_t>(stretch.output));
      }
    }
  }
  return possible;
}

}  // namespace

TEST_CASE("a direct collective's stretches are its result") {
  for (const Collective which :
       {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::reduce_scatter,
        Collective::all_gather, Collective::gather, Collective::scatter, Collective::all_to_all})
    for (const int ranks : {2, 3, 4, ranks_most})
      for (const int root : {0, ranks - 1}) {
        if (root != 0 && !is_rooted(which)) continue;
        for (const std::size_t count : {1, 16, 21, 48, (1 << 20) + 48, (1 << 20) + 3}) {
          const Case c{which, ranks, root, count, false};
          CAPTURE(name(which));
          CAPTURE(ranks);
          CAPTURE(root);
          CAPTURE(count);
          for (const Folding folding : {Folding::loaded, Folding::pushed, Folding::passed}) {
            Buffers buffers = buffers_of(c);
            REQUIRE(run(c, folding, buffers));
            for (int rank = 0; rank < ranks; ++rank) {
              REQUIRE(wrong_in(c, buffers, rank) == 0);
            }
          }
        }
      }
}

TEST_CASE("parts of a message begin at whole lines, however long it is") {
  for (const Collective which : {Collective::all_reduce, Collective::reduce, Collective::broadcast})
    for (const int ranks : {2, 3, 4, ranks_most})
      for (const std::size_t count : {std::size_t{1} << 27, std::size_t{100'000'000}, (std::size_t{1} << 24) + 16})
        for (int rank = 0; rank < ranks; ++rank) {
          Request request;
          request.which = which;
          request.type = DataType::uint8;
          request.count = count;
          const auto plan = std::make_unique<DirectPlan>(plan_direct(request, rank, ranks));
          REQUIRE(plan->possible);
          for (int i = 0; i < plan->count; ++i) {
            CHECK(plan->stretches[i].input % 128 == 0);
            CHECK(plan->stretches[i].output % 128 == 0);
          }
        }
}

TEST_CASE("a rank that keeps some of its own and gives or gets more has blocks for both") {
  for (const Collective which :
       {Collective::all_gather, Collective::gather, Collective::scatter, Collective::all_to_all, Collective::broadcast})
    for (const int ranks : {2, 3, ranks_most})
      for (int rank = 0; rank < ranks; ++rank) {
        CAPTURE(name(which));
        CAPTURE(ranks);
        CAPTURE(rank);
        Request request;
        request.which = which;
        request.type = DataType::uint8;
        request.count = 1 << 20;
        const auto plan = std::make_unique<DirectPlan>(plan_direct(request, rank, ranks));
        const std::uint32_t self = 1U << rank;
        bool keeps = false;
        bool goes_far = false;
        for (int i = 0; i < plan->count; ++i) {
          const Stretch& stretch = plan->stretches[i];
          keeps = keeps || (stretch.from == self && (stretch.to & self) != 0);
          goes_far = goes_far || (stretch.from == self ? (stretch.to & ~self) : stretch.to) != 0;
        }
        if (keeps && goes_far) CHECK(plan->link_blocks < max_blocks);
      }
}

// What a rank pushes to another, or passes on, is what that one folds: all ranks have the same list.
TEST_CASE("all ranks know what each folds") {
  for (const Folding folding : {Folding::pushed, Folding::passed})
    for (const auto& [which, ranks] :
         {std::pair(Collective::all_reduce, 2), std::pair(Collective::all_reduce, 3), std::pair(Collective::reduce, 2),
          std::pair(Collective::reduce, ranks_most), std::pair(Collective::reduce_scatter, ranks_most)}) {
      Request request;
      request.which = which;
      request.type = DataType::uint8;
      request.count = (1 << 20) + 16;
      request.root = ranks - 1;
      const auto first = std::make_unique<DirectPlan>(plan_direct(request, 0, ranks, folding));
      REQUIRE(first->count == ranks);
      for (int rank = 1; rank < ranks; ++rank) {
        const auto plan = std::make_unique<DirectPlan>(plan_direct(request, rank, ranks, folding));
        for (int folder = 0; folder < ranks; ++folder) {
          const Stretch& here = plan->stretches[folder];
          const Stretch& there = first->stretches[folder];
          CHECK(here.input == there.input);
          CHECK(here.output == there.output);
          CHECK(here.bytes == there.bytes);
          CHECK(here.to == there.to);
        }
      }
    }
}

// A rank's warp, step by step, with as many chunks on their way as its ring holds; as if its block did all of the call.
class PassingRank {
 public:
  PassingRank(const Case& c, int rank, int block, Buffers& buffers)
      : rank_(rank),
        ring_(ring_place(rank, c.ranks, is_rooted(c.which) ? c.root : max_gpus, block)),
        ahead_(pass_ahead(is_rooted(c.which))),
        buffers_(buffers) {
    Request request;
    request.which = c.which;
    request.count = c.count;
    request.root = c.root;
    request.type = DataType::uint8;
    plan_ = plan_direct(request, rank, c.ranks, Folding::passed);
    const int steps = pass_steps(plan_.stretches, c.ranks);
    std::uint64_t longest = 0;
    for (int folder = 0; folder < c.ranks; ++folder) longest = std::max(longest, plan_.stretches[folder].bytes);
    const std::uint64_t turn = pass_turn(c.ranks) * chunk;
    for (std::uint64_t first = 0; first < longest; first += turn)
      for (int step = 0; step < steps; ++step)
        for (std::uint64_t at = first; at < first + turn; at += chunk) {
          const PassStep now = pass_step(step, steps, ring_.place, c.ranks);
          if (at < plan_.stretches[now.folder].bytes) turns_.push_back({now, at});
        }
  }

  [[nodiscard]] const RingPlace& ring() const { return ring_; }
  [[nodiscard]] bool is_done() const { return done_ == turns_.size(); }
  // False: it waits.
  bool go_on(PassingRank& next) {
    if (is_done()) return false;
    const auto& [step, at] = turns_[done_];
    if ((step.takes && inbox_.empty()) || (step.gives && next.inbox_.size() == ahead_)) return false;
    const Stretch& stretch = plan_.stretches[step.folder];
    const std::uint64_t bytes = std::min(chunk, stretch.bytes - at);
    const auto output = [&](int rank) {
      return buffers_.outputs[static_cast<std::size_t>(rank)].begin() +
             static_cast<std::ptrdiff_t>(stretch.output + at);
    };
    std::vector<std::byte> sums(bytes);
    if (step.takes) {
      REQUIRE(inbox_.front().empty() == !step.folds);
      if (step.folds)
        sums = inbox_.front();
      else
        std::copy_n(output(rank_), bytes, sums.begin());
      REQUIRE(sums.size() == bytes);
      inbox_.pop_front();
    }
    for (std::size_t b = 0; step.folds && b < bytes; ++b) {
      const std::byte own = buffers_.inputs[static_cast<std::size_t>(rank_)][stretch.input + at + b];
      sums[b] = static_cast<std::byte>(static_cast<unsigned>(sums[b]) + static_cast<unsigned>(own));
    }
    if (step.finishes) std::copy(sums.begin(), sums.end(), output(rank_));
    const bool result = step.finishes || !step.folds;
    if (step.gives && result) std::copy(sums.begin(), sums.end(), output(ring_.next));
    if (step.gives) next.inbox_.push_back(result ? std::vector<std::byte>() : sums);
    ++done_;
    return true;
  }

 private:
  static constexpr std::uint64_t chunk = 64;
  struct Turn {
    PassStep step;
    std::uint64_t at;
  };
  int rank_;
  RingPlace ring_;
  std::size_t ahead_;
  Buffers& buffers_;
  DirectPlan plan_;
  std::vector<Turn> turns_;
  std::size_t done_ = 0;
  std::deque<std::vector<std::byte>> inbox_;  // in its window; empty: in its output
};

TEST_CASE("what is passed on comes round") {
  for (const Collective which : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter})
    for (const int ranks : {2, 3, 4, ranks_most})
      for (const int root : {0, 1, ranks - 1})
        for (const int block : {0, 1, ranks - 1, 2 * ranks - 1})
          for (const std::size_t count : {16, 48, 5008}) {
            const Case c{which, ranks, root, count, false};
            CAPTURE(name(which));
            CAPTURE(ranks);
            CAPTURE(root);
            CAPTURE(block);
            CAPTURE(count);
            Buffers buffers = buffers_of(c);
            std::vector<PassingRank> all;
            for (int rank = 0; rank < ranks; ++rank) all.emplace_back(c, rank, block, buffers);
            bool goes_on = true;
            while (goes_on) {
              goes_on = false;
              // The last ones first, as far as they come.
              for (std::size_t rank = all.size(); rank-- > 0;)
                while (all[rank].go_on(all[static_cast<std::size_t>(all[rank].ring().next)])) goes_on = true;
            }
            for (int rank = 0; rank < ranks; ++rank) {
              REQUIRE(all[static_cast<std::size_t>(rank)].is_done());
              REQUIRE(wrong_in(c, buffers, rank) == 0);
            }
          }
}

TEST_CASE("rings of all blocks close, and their ends take turns") {
  for (int ranks = 2; ranks <= max_gpus; ++ranks)
    for (const int root : {0, 1, ranks - 1, max_gpus}) {
      CAPTURE(ranks);
      CAPTURE(root);
      std::vector<int> first(static_cast<std::size_t>(ranks));
      for (int block = 0; block < ranks - 1; ++block) {
        for (int rank = 0; rank < ranks; ++rank) {
          const RingPlace here = ring_place(rank, ranks, root, block);
          const RingPlace next = ring_place(here.next, ranks, root, block);
          CHECK(next.place == (here.place + 1) % ranks);
          CHECK(next.before == rank);
          if (rank == root) CHECK(here.place == ranks - 1);
          if (here.place == 0) ++first[static_cast<std::size_t>(rank)];
        }
      }
      for (int rank = 0; root < ranks && rank < ranks; ++rank)
        CHECK(first[static_cast<std::size_t>(rank)] == (rank == root ? 0 : 1));
    }
}

TEST_CASE("only sums that are as wide as their type are passed on") {
  CHECK(passes_sums(DataType::float32));
  CHECK(passes_sums(DataType::int8));
  CHECK_FALSE(passes_sums(DataType::bfloat16));
  CHECK_FALSE(passes_sums(DataType::float8e5m2));
}

TEST_CASE("of folds that are not loaded no input is seen by others, and of a reduce-scatter no output") {
  Request request;
  for (const Folding folding : {Folding::pushed, Folding::passed}) {
    request.which = Collective::all_reduce;
    CHECK(seen_by_others(request, Folding::loaded).input);
    CHECK_FALSE(seen_by_others(request, folding).input);
    CHECK(seen_by_others(request, folding).output);
    request.which = Collective::reduce_scatter;
    CHECK(seen_by_others(request, Folding::loaded).output);
    CHECK_FALSE(seen_by_others(request, folding).output);
  }
  request.which = Collective::broadcast;
  CHECK_FALSE(seen_by_others(request, Folding::passed).input);
  CHECK(seen_by_others(request, Folding::passed).output);
}

TEST_CASE("chunks that are passed on lie side by side in the window") {
  for (const int ranks : {2, 3, 4, 5, 8, 9, max_gpus}) {
    const WindowLayout layout = WindowLayout::of(ranks);
    std::uint64_t next = layout.large;
    for (std::uint32_t number = 0; number < pass_slots; ++number)
      for (std::uint32_t lane = 0; lane < pass_lanes; ++lane, next += pass_chunk)
        REQUIRE(layout.passed(lane, number + 5 * pass_slots) == next);
    CHECK(next <= layout.total(ranks));
  }
}

TEST_CASE("pushed chunks of all lanes lie side by side in the room that a source has") {
  for (const int ranks : {2, 3, 4, 5, 8, 9, max_gpus}) {
    const WindowLayout layout = WindowLayout::of(ranks);
    std::uint64_t next = layout.large;
    for (std::uint32_t lane = 0; lane < push_lanes; ++lane)
      for (std::uint32_t number = 0; number < layout.push_slots; ++number, next += push_chunk)
        REQUIRE(layout.pushed(0, lane, number + 3 * layout.push_slots) == next);
    CHECK(next <= layout.chunk(1, 0, 0));
    CHECK(layout.pushed(1, 0, 0) == layout.chunk(1, 0, 0));
    CHECK((layout.push_slots & (layout.push_slots - 1)) == 0);
  }
}

TEST_CASE("odd calls do not go by the users' buffers") {
  Request request;
  request.which = Collective::all_reduce;
  request.type = DataType::uint8;
  CHECK_FALSE(plan_direct(request, 0, 2).possible);
  request.count = 64 << 20;
  CHECK(plan_direct(request, 0, 2).possible);
  CHECK_FALSE(plan_direct(request, 0, 1).possible);
  CHECK(goes_evenly(request));
  request.op = Operation::avg;
  CHECK(goes_evenly(request));
  request.type = DataType::float16;  // scaled first
  CHECK_FALSE(goes_evenly(request));
  request.op = Operation::sum;
  CHECK(goes_evenly(request));
  request.count += 4;
  CHECK_FALSE(goes_evenly(request));
  CHECK(plan_direct(request, 0, 2).possible);
  request.which = Collective::barrier;
  request.count = 16;
  CHECK_FALSE(plan_direct(request, 0, 2).possible);
}

TEST_CASE("buffers that others do not see must be aligned, and an all-to-all's not the same") {
  std::vector<std::byte> memory(4096);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const aligned = memory.data() + (16 - address % 16) % 16;
  Request request;
  request.which = Collective::all_to_all;
  request.type = DataType::uint8;
  request.count = 64;
  request.send = aligned;
  request.recv = aligned + 128;
  CHECK(fits_direct(request, 2, Folding::loaded));
  request.recv = aligned + 64;
  CHECK_FALSE(fits_direct(request, 2, Folding::loaded));
  request.recv = aligned;
  CHECK_FALSE(fits_direct(request, 2, Folding::loaded));
  request.which = Collective::all_reduce;
  for (const Folding folding : {Folding::loaded, Folding::passed}) {
    request.send = request.recv = aligned;
    CHECK(fits_direct(request, 2, folding));
    request.recv = aligned + 8;
    CHECK(fits_direct(request, 2, folding));
    request.send = aligned + 8;
    CHECK(fits_direct(request, 2, folding) == (folding == Folding::loaded));
  }
}

}  // namespace paceline::cuda
