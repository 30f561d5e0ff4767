// The chain that runs is the one that was searched.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>

#include "topology/chain_order.h"
#include "topology/part.h"
#include "tuning/prediction/prediction.h"

namespace paceline {

TEST_CASE("from every root of a DGX-1V a broadcast is as fast as its chain is wide") {
  const Topology machine = whole("dgx1-v100");
  Question question;
  question.collective = Collective::broadcast;
  question.algorithm = "topology_chain";
  question.sizes = {256 << 20};
  question.machine = typical_machine();
  for (unsigned set = 0; set < 256; ++set) {
    if (std::popcount(set) < 3 || std::popcount(set) > 5) continue;
    question.gpus = subset(static_cast<int>(set));
    for (std::size_t root = 0; root < question.gpus.size(); ++root) {
      INFO("set ", set, ", root ", root);
      question.root = static_cast<int>(root);
      const auto chain = least_loaded_chain(machine, question.gpus, question.gpus[root]);
      REQUIRE(chain.ok());
      REQUIRE(chain->max_link_load == 1);
      const auto answer = predict(machine, question);
      REQUIRE(answer.ok());
      CHECK(answer->rows[0].algbw_gbs >= 0.95 * chain->width);
      CHECK(answer->rows[0].algbw_gbs <= 1.0001 * chain->width);
    }
  }
}

}  // namespace paceline
