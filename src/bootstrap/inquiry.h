// Who holds a call up? Rank 0 has asked every rank of the communicator; from their answers comes the error that all
// ranks get: the rank that does not answer, else the one furthest behind, else the one that was waited for; in place of
// one that waits in its call for another rank, that other one.
#pragma once

#include <optional>
#include <vector>

#include "bootstrap/control_message.h"

namespace paceline {

inline constexpr char no_answer[] = "does not answer: its process is stopped or its node unreachable";

// `answers` and `members` by the communicator's rank; no answer: silent.
Status::Detail accuse(const Suspicion& suspicion, const std::vector<std::optional<Pong>>& answers,
                      const std::vector<Member>& members);
// The same for a culprit who is known: `why` follows its name. in_turn: the one that was waited for waits for it.
Status::Detail accusation(const Suspicion& suspicion, int rank, const Member& member, const std::string& why,
                          bool in_turn = false);

}  // namespace paceline
