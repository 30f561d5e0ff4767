// What readers and writers of NCCL's XML share.
#pragma once

#include <pugixml.hpp>
#include <string>

namespace paceline {

// Elements within one another.
inline constexpr int deepest_element = 32;

inline void set(pugi::xml_node element, const char* key, const std::string& value) {
  element.append_attribute(key).set_value(value.c_str());
}

}  // namespace paceline
