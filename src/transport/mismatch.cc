#include "transport/mismatch.h"

#include <fmt/format.h>

namespace paceline {

Status mismatch(int my_rank, const Call& mine, int other_rank, const Call& theirs) {
  Status::Detail detail;
  detail.code = Code::mismatch;
  detail.rank = other_rank;
  detail.peer = my_rank;
  detail.collective = title(mine);
  detail.sequence = mine.sequence;
  if (same_but_for_way(mine, theirs))
    detail.message = fmt::format(
        "rank {} and rank {} run {} by different algorithms, chunks or radices: what is forced (paceCommSetAlgorithm, "
        "PACELINE_ALGORITHM, PACELINE_CHUNK) and the tuning must be the same on every rank",
        my_rank, other_rank, describe(mine));
  else
    detail.message =
        fmt::format("rank {} called {}, but rank {} called {}: every rank must make the same calls in the same order",
                    my_rank, describe(mine), other_rank, describe(theirs));
  return Status(std::move(detail));
}

Status passed_over(int my_rank, const Call& mine, int other_rank, const Call& theirs) {
  Status::Detail detail = mismatch(my_rank, mine, other_rank, theirs).detail();
  detail.message = fmt::format(
      "rank {} called {}, but rank {} is past it, in {}, and sent nothing for it: every rank must make the same calls "
      "in the same order, by the same algorithms",
      my_rank, describe(mine), other_rank, describe(theirs));
  return Status(std::move(detail));
}

Status left_untaken(int my_rank, int other_rank, const Call& theirs) {
  Status::Detail detail = mismatch(my_rank, theirs, other_rank, theirs).detail();
  detail.message = fmt::format(
      "rank {} called {}, which rank {} has not: it has left without it; every rank must make the same calls in the "
      "same order",
      other_rank, describe(theirs), my_rank);
  return Status(std::move(detail));
}

}  // namespace paceline
