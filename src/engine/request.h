// One call of the API, checked, on its way to a communicator.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/call.h"
#include "base/status.h"
#include "schedule/problem.h"

namespace paceline {

struct Request {
  Collective which = Collective::barrier;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::size_t count = 0;  // elements, as in the call
  DataType type = DataType::uint8;
  Operation op = Operation::sum;
  int root = 0;                       // of rooted collectives; the peer of send and recv
  std::array<std::byte, 8> factor{};  // of premulsum: Factor, base/reduction.h
  Serves serves = Serves::user;       // not so: an all-gather, as serving() of base/call.h has it
  int send_gpu = -1;                  // whose memory it is; -1: the host's, or the call does not use it
  int recv_gpu = -1;
};

// Not a collective, but a send or a receive.
inline bool is_message(Collective which) { return which == Collective::send || which == Collective::recv; }

Problem problem_of(const Request& request, int ranks, bool in_place = false);

// Of a group's messages those of a rank to itself, each send with its receive, in order. Mismatch: they do not fit.
Result<std::vector<std::pair<const Request*, const Request*>>> messages_to_self(
    std::span<const Request* const> messages, int rank);

// Whether inputs are scaled before they are folded, if they are.
bool scales_input(const Request& request);

// Whether the call's buffers are one, in the way that paceline.h says for the collective.
bool is_in_place(const Request& request, int rank);
// Whether they have bytes in common otherwise.
bool overlap_partly(const Request& request, int rank, int ranks);

}  // namespace paceline
