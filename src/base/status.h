// The one error type. An ok Status is a null pointer: returning it costs nothing on the way of a call.
//
// An error says what happened, to whom, and what to do; the facts that a program may want are fields of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace paceline {

// Numbers of paceResult_t.
enum class Code : int {
  ok = 0,
  cuda = 1,
  system = 2,
  internal = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote = 6,
  in_progress = 7,
  timeout = 8,
  mismatch = 9,
  aborted = 10,
  unsupported = 11,
};

const char* name(Code code);

class [[nodiscard]] Status {
 public:
  struct Detail {
    Code code = Code::internal;
    std::string message;     // the whole sentence, ready to show
    int rank = -1;           // whom it is about; -1 where unknown
    std::string host;        // that rank's host; empty where unknown
    int peer = -1;           // the other side; -1 where unknown
    std::string collective;  // empty outside of a collective
    std::uint64_t sequence = 0;
    int system_errno = 0;
  };

  Status() = default;
  Status(Code code, std::string message);
  explicit Status(Detail detail) : detail_(std::make_shared<Detail>(std::move(detail))) {}

  // An error of the operating system: "what: strerror(error)".
  static Status system(std::string what, int error);

  [[nodiscard]] bool ok() const { return detail_ == nullptr; }
  [[nodiscard]] Code code() const { return detail_ ? detail_->code : Code::ok; }
  [[nodiscard]] const std::string& message() const;
  // Undefined for an ok status.
  [[nodiscard]] const Detail& detail() const { return *detail_; }

 private:
  std::shared_ptr<const Detail> detail_;
};

// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::in_place_index<0>, std::move(value)) {}
  Result(Status error) : value_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const { return value_.index() == 0; }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<1>(value_); }
  T& operator*() { return std::get<0>(value_); }
  const T& operator*() const { return std::get<0>(value_); }
  T* operator->() { return &std::get<0>(value_); }
  const T* operator->() const { return &std::get<0>(value_); }

 private:
  std::variant<T, Status> value_;
};

// Leave the function with the error, if there is one.
#define PACE_TRY(expression)                                                    \
  do {                                                                          \
    if (auto pace_status = (expression); !pace_status.ok()) return pace_status; \
  } while (false)

}  // namespace paceline
