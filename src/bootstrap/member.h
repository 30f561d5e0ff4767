// A rank as messages name it, and this process as others will know it.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/session.h"

namespace paceline {

Member this_member();  // all but its address

std::string named(int rank, const Member& member);      // "rank 3 (node-b, pid 123)"
std::string listed(const std::vector<int>& ascending);  // "rank 3", "ranks 1, 3 to 7, 9"

// An error that says nothing of a rank is this process's own: with its rank.
Status own_error(int rank, const Status& status);

// Code::timeout: ranks that did not take part in `what` ("the rendezvous").
Status::Detail absence(const std::vector<int>& missing, const std::string& what, double seconds);

}  // namespace paceline
