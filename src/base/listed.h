// Names in a sentence.
#pragma once

#include <string>

namespace paceline {

// "a, b, c"
template <class Names>
std::string listed(const Names& names, const char* between = ", ") {
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += between;
    text += name;
  }
  return text;
}

}  // namespace paceline
