#include "base/status.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

#include "paceline/paceline.h"

namespace paceline {
namespace {

Status try_it(const Status& status) {
  PACE_TRY(status);
  return Status(Code::internal, "went on");
}

}  // namespace

TEST_CASE("a status without an error is ok") {
  const Status status;
  CHECK(status.ok());
  CHECK(status.code() == Code::ok);
  CHECK(status.message() == "no error");
}

TEST_CASE("an error keeps its code and its sentence") {
  const Status status(Code::mismatch, "rank 1 called another");
  CHECK_FALSE(status.ok());
  CHECK(status.code() == Code::mismatch);
  CHECK(status.message() == "rank 1 called another");
  CHECK(status.detail().rank == -1);
  CHECK(status.detail().peer == -1);
  CHECK(status.detail().host.empty());
}

TEST_CASE("an error of the system says what was tried, and keeps the number") {
  const Status status = Status::system("opening the door", ENOENT);
  CHECK(status.code() == Code::system);
  CHECK(status.message() == "opening the door: No such file or directory");
  CHECK(status.detail().system_errno == ENOENT);
}

TEST_CASE("copies of an error show the same detail") {
  Status::Detail detail;
  detail.code = Code::remote;
  detail.rank = 3;
  detail.host = "node-b";
  detail.peer = 1;
  detail.collective = "all-reduce";
  detail.sequence = 812;
  const Status status(std::move(detail));
  const Status copy = status;  // NOLINT(performance-unnecessary-copy-initialization)
  CHECK(&copy.detail() == &status.detail());
  CHECK(copy.code() == Code::remote);
  CHECK(copy.detail().rank == 3);
  CHECK(copy.detail().host == "node-b");
  CHECK(copy.detail().peer == 1);
  CHECK(copy.detail().collective == "all-reduce");
  CHECK(copy.detail().sequence == 812);
}

TEST_CASE("a result is a value or an error") {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(7));
  CHECK(value.ok());
  CHECK(value.status().ok());
  CHECK(**value == 7);
  const std::unique_ptr<int> taken = std::move(*value);
  CHECK(*taken == 7);

  const Result<std::string> error(Status(Code::timeout, "too late"));
  CHECK_FALSE(error.ok());
  CHECK(error.status().code() == Code::timeout);
  CHECK(error.status().message() == "too late");

  // Ok only with a value: a status as a value would hide its errors.
  CHECK(Result<std::string>("text")->size() == 4);
}

TEST_CASE("PACE_TRY leaves with an error and goes on without one") {
  CHECK(try_it(Status(Code::aborted, "stop")).message() == "stop");
  CHECK(try_it({}).message() == "went on");
}

TEST_CASE("codes are those of the C API, each with a name") {
  CHECK(static_cast<int>(Code::ok) == paceSuccess);
  CHECK(static_cast<int>(Code::system) == paceSystemError);
  CHECK(static_cast<int>(Code::invalid_argument) == paceInvalidArgument);
  CHECK(static_cast<int>(Code::remote) == paceRemoteError);
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::unsupported); ++code) names.insert(name(static_cast<Code>(code)));
  CHECK(names.size() == 12);
  CHECK(names.count("unknown") == 0);
  CHECK(std::string(name(static_cast<Code>(12))) == "unknown");
}

}  // namespace paceline
