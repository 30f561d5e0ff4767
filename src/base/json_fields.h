// What files and requests that came from outside are read by: questions that no JSON value makes throw.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace paceline {

inline bool is_number(const nlohmann::json& object, const char* key, double least, double most) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() && found->get<double>() >= least && found->get<double>() <= most;
}

inline bool is_text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string();
}

inline bool is_list(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array();
}

// What nests no deeper than files of ours do: what nests without end must not exhaust the stack when it is freed.
// Discarded where the text is something else; `fault` gets why.
inline nlohmann::json parse_json(std::string_view text, std::string* fault = nullptr) {
  using nlohmann::json;
  constexpr int deepest = 8;
  bool too_deep = false;
  const json::parser_callback_t shallow = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > deepest;
    return !too_deep;
  };
  std::string why;
  json parsed(json::value_t::discarded);
  try {
    parsed = json::parse(text, shallow);
  } catch (const json::parse_error& error) {
    why = error.byte > text.size() ? "it ends too early" : fmt::format("wrong at byte {}", error.byte);
  } catch (const json::exception&) {
    why = "a number is too large";
  }
  if (too_deep) why = fmt::format("it is nested more than {} deep", deepest);
  if (fault != nullptr) *fault = why;
  return why.empty() ? parsed : json(json::value_t::discarded);
}
inline nlohmann::json parse_object(std::string_view text) {
  nlohmann::json parsed = parse_json(text);
  return parsed.is_object() ? parsed : nlohmann::json(nlohmann::json::value_t::discarded);
}

}  // namespace paceline
