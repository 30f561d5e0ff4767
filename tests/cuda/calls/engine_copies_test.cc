// What the copy engines are told is run here by memcpy, among all ranks' buffers.
#include "cuda/calls/engine_copies.h"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <vector>

#include "cuda/calls/byte_buffers.h"

namespace paceline::cuda {
namespace {

Request request_of(const Case& c, int rank, Buffers& buffers) {
  const auto at = static_cast<std::size_t>(rank);
  Request request;
  request.which = c.which;
  request.count = c.count;
  request.root = c.root;
  request.type = DataType::uint8;
  request.send = buffers.inputs[at].empty() ? nullptr : buffers.inputs[at].data();
  request.recv = buffers.outputs[at].data();
  return request;
}

}  // namespace

TEST_CASE("engine copies are the collective's result, and a rank stores into its own output alone") {
  for (const Collective which :
       {Collective::broadcast, Collective::all_gather, Collective::gather, Collective::scatter, Collective::all_to_all})
    for (const int ranks : {2, 3, 8})
      for (const int root : {0, ranks - 1}) {
        const Case c{which, ranks, root, 80, false};
        CAPTURE(name(which));
        CAPTURE(ranks);
        CAPTURE(root);
        Buffers buffers = buffers_of(c);
        for (int rank = 0; rank < ranks; ++rank) {
          const EngineCopies plan = plan_engine_copies(request_of(c, rank, buffers), rank, ranks);
          REQUIRE(plan.possible == (which != Collective::broadcast || ranks == 2));
          auto& output = buffers.outputs[static_cast<std::size_t>(rank)];
          for (int i = 0; i < plan.count; ++i) {
            const EngineCopy& copy = plan.copies[i];
            const auto& input = buffers.inputs[static_cast<std::size_t>(copy.from)];
            REQUIRE(copy.input + copy.bytes <= input.size());
            REQUIRE(copy.output + copy.bytes <= output.size());
            std::memcpy(output.data() + copy.output, input.data() + copy.input, copy.bytes);
          }
          if (plan.possible) REQUIRE(wrong_in(c, buffers, rank) == 0);
        }
      }
}

TEST_CASE("engine copies: at any time each rank's input is read by one") {
  const int ranks = 5;
  const Case c{Collective::all_to_all, ranks, 0, 32, false};
  Buffers buffers = buffers_of(c);
  for (int i = 0; i < ranks; ++i) {
    std::set<int> read;
    for (int rank = 0; rank < ranks; ++rank)
      read.insert(plan_engine_copies(request_of(c, rank, buffers), rank, ranks).copies[i].from);
    CHECK(read.size() == ranks);
  }
}

TEST_CASE("engine copies: what lies in place stays, and what is folded, empty or of one rank is not for them") {
  Case c{Collective::all_gather, 2, 0, 32, false};
  Buffers buffers = buffers_of(c);
  Request request = request_of(c, 1, buffers);
  CHECK(plan_engine_copies(request, 1, 2).count == 2);
  request.send = request.recv + 32;
  CHECK(plan_engine_copies(request, 1, 2).count == 1);
  CHECK(plan_engine_copies(request, 1, 2).copies[0].from == 0);
  request.which = Collective::broadcast;
  request.root = 1;
  request.send = request.recv;
  CHECK(plan_engine_copies(request, 1, 2).count == 0);
  CHECK(plan_engine_copies(request, 1, 2).possible);
  CHECK_FALSE(plan_engine_copies(request, 1, 1).possible);
  request.count = 0;
  CHECK_FALSE(plan_engine_copies(request, 1, 2).possible);
  request.count = 32;
  for (const Collective which : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
                                 Collective::barrier, Collective::send, Collective::recv}) {
    request.which = which;
    CHECK_FALSE(plan_engine_copies(request, 1, 2).possible);
  }
}

}  // namespace paceline::cuda
