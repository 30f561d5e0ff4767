// Where a machine's profile lies, and whether it is this machine's.
#pragma once

#include <string>
#include <string_view>

namespace paceline {

// What a profile is good for: CPU model, number of CPUs, NUMA nodes, GPUs and NICs. 16 hexadecimal digits.
std::string machine_fingerprint();

// PACELINE_TUNING, or tuning-FINGERPRINT.json in paceline's folder of the user's cache. Empty: switched off, or there
// is no such folder to look into (then nothing has been looked up; `even_if_missing` names the file all the same).
std::string tuning_path(bool even_if_missing = false);

// The text of the profile, for rank 0 to give to all; empty: none. A file that cannot be used is a warning that says
// why and what to do.
std::string tuning_of_this_machine(int rank);

// Why a profile is not this machine's and this build's, or nothing.
std::string reason_against(std::string_view profile, std::string_view fingerprint, std::string_view version);

// "0.1.0".
std::string library_version();

}  // namespace paceline
