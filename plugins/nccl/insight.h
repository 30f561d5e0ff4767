// What the library says of itself.
#pragma once

#include <string>

namespace paceline::nccl {

// With NCCL_DEBUG=VERSION, INFO or TRACE: one line, once, on standard output as NCCL's own, that says who serves what.
void announce();
// The same where a communicator of Paceline's making turns out to be NCCL's.
void announce_handover(int ranks, const std::string& why);

}  // namespace paceline::nccl

// This library's state as JSON text: {"path","stands_in_for","real":{"path","version"}|null,"why_no_real",
// "why_nccl_serves_all","problem","functions":[{"name","served_by","why"}]}. `paceline doctor --nccl` reads it. Valid
// until the next call on this thread.
extern "C" __attribute__((visibility("default"))) const char* paceNcclDescribe();
