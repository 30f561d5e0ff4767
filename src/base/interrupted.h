// Whether the program wants the call that it waits in to end.
#pragma once

#include <chrono>

namespace paceline {

// What is asked; nullptr: nothing.
void ask_when_waiting(int (*interrupted)());

// Asks it, if this is the process's first thread, on which languages run their signals' handlers. No lock may be held:
// the handler may call the library.
bool interrupted();
// How often waits that sleep ask it.
inline constexpr std::chrono::milliseconds between_questions{250};

}  // namespace paceline
