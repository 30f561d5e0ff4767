// A unique id of another process: its thread there is none beside this one's forks.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "bootstrap/launch.h"
#include "bootstrap/ranks.h"

namespace paceline::testing {

class MadeElsewhere {
 public:
  // The process stays until this is destroyed. `then`: what it does when it has told the id.
  using Then = std::function<void(const Bytes& id, const Child::Say& say)>;
  explicit MadeElsewhere(const Then& then = [](const Bytes&, const Child::Say&) { ::pause(); })
      : process_([&then](const Child::Say& say) {
          const Result<Bytes> made = make_unique_id();
          if (!made.ok()) return say(made.status().message());
          say(hexadecimal(*made));
          then(*made, say);
        }),
        id_(from_hexadecimal(process_.line())) {
    REQUIRE(id_.size() == 128);
  }

  [[nodiscard]] const Bytes& id() const { return id_; }
  Child& process() { return process_; }

 private:
  static std::string hexadecimal(const Bytes& id) {
    std::string text;
    for (const std::byte byte : id) {
      text += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
      text += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
    }
    return text;
  }
  static Bytes from_hexadecimal(const std::string& text) {
    Bytes id;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
      id.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return id;
  }

  Child process_;
  Bytes id_;
};

}  // namespace paceline::testing
