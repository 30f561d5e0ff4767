#include "engine/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace paceline {

Problem problem_of(const Request& request, int ranks, bool in_place) {
  return {.collective = request.which,
          .ranks = ranks,
          .root = is_rooted(request.which) ? request.root : 0,
          .count = request.count,
          .in_place = in_place};
}

bool scales_input(const Request& request) {
  return request.op == Operation::premulsum || (request.op == Operation::avg && averages_first(request.type));
}

bool is_in_place(const Request& request, int rank) {
  if (request.send == nullptr || request.recv == nullptr) return false;
  const Problem problem = problem_of(request, 1);  // the number of ranks changes nothing
  const std::ptrdiff_t offset = input_in_output(problem, rank) * static_cast<std::ptrdiff_t>(size_of(request.type));
  return request.send == request.recv + offset;
}

bool overlap_partly(const Request& request, int rank, int ranks) {
  if (is_message(request.which) || is_in_place(request, rank)) return false;
  const Problem problem = problem_of(request, ranks);
  const std::size_t sent = input_elements(problem, rank) * size_of(request.type);
  const std::size_t received = output_elements(problem, rank) * size_of(request.type);
  const auto send = reinterpret_cast<std::uintptr_t>(request.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(request.recv);
  return send < recv + received && recv < send + sent;
}

Result<std::vector<std::pair<const Request*, const Request*>>> messages_to_self(
    std::span<const Request* const> messages, int rank) {
  std::vector<const Request*> sends;
  std::vector<const Request*> receives;
  for (const Request* message : messages)
    if (message->root == rank) (message->which == Collective::send ? sends : receives).push_back(message);
  const auto same = [](const Request* a, const Request* b) { return a->count == b->count && a->type == b->type; };
  if (!std::ranges::equal(sends, receives, same))
    return Status(
        Code::mismatch,
        fmt::format(
            "rank {} sends and receives different messages to itself: each needs a group with its send and its receive",
            rank));
  std::vector<std::pair<const Request*, const Request*>> pairs;
  for (std::size_t i = 0; i < sends.size(); ++i) pairs.emplace_back(sends[i], receives[i]);
  return pairs;
}

}  // namespace paceline
