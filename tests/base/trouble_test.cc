#include "base/trouble.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <string>

namespace paceline {
namespace {

Status about(int rank, Code code, const std::string& message) {
  Status::Detail detail;
  detail.code = code;
  detail.message = message;
  detail.rank = rank;
  detail.host = "its-host";
  return Status(std::move(detail));
}

}  // namespace

TEST_CASE("trouble: everything of an error arrives") {
  Status::Detail sent = about(1, Code::unsupported, "no way").detail();
  sent.peer = 4;
  sent.system_errno = EMFILE;
  sent.collective = "all-reduce";
  sent.sequence = 7;
  const Status status = Trouble::of(Status(sent), 2, "here").status();
  CHECK(status.code() == Code::unsupported);
  CHECK(status.message() == "no way");
  CHECK(status.detail().rank == 1);
  CHECK(status.detail().host == "its-host");
  CHECK(status.detail().peer == 4);
  CHECK(status.detail().system_errno == EMFILE);
  CHECK(status.detail().collective == "all-reduce");
  CHECK(status.detail().sequence == 7);
  CHECK(Trouble::of({}, 2, "here").status().ok());
}

TEST_CASE("trouble: a quoted error says who says so") {
  const Trouble trouble = Trouble::of(about(1, Code::unsupported, "no way"), 2, "here");
  CHECK(trouble.quoted().message() == "rank 2: no way");
  CHECK(trouble.quoted().detail().rank == 1);
  CHECK(Trouble::of({}, 2, "here").quoted().ok());
}

TEST_CASE("trouble: what another has said of a rank is quoted without naming it twice") {
  const Trouble trouble = Trouble::of(about(2, Code::timeout, "rank 2 (its-host) did not come"), 2, "its-host");
  CHECK(trouble.quoted().message() == "rank 2 (its-host) did not come");
  const Trouble of_other = Trouble::of(about(1, Code::timeout, "rank 1 (its-host) did not come"), 2, "here");
  CHECK(of_other.quoted().message() == "rank 2: rank 1 (its-host) did not come");
}

TEST_CASE("trouble: an error that names nobody is about the rank that has it") {
  const Status status = Trouble::of(Status(Code::system, "no room"), 2, "here").status();
  CHECK(status.detail().rank == 2);
  CHECK(status.detail().host == "here");
}

TEST_CASE("trouble: too long a message is cut") {
  const Status status = Trouble::of(Status(Code::system, std::string(1000, 'x')), 0, std::string(1000, 'h')).status();
  CHECK(status.message() == std::string(383, 'x'));
  CHECK(status.detail().host == std::string(63, 'h'));
}

TEST_CASE("trouble: the root cause is what a rank says of itself, not what others say of it") {
  const Trouble none;
  const Trouble of_a_peer = Trouble::of(about(2, Code::remote, "rank 2 closed the connection"), 0, "a");
  const Trouble another = Trouble::of(about(0, Code::timeout, "rank 0 is late"), 1, "b");
  const Trouble own = Trouble::of(Status(Code::system, "too many open files"), 2, "c");
  CHECK(root_cause({}).ok());
  CHECK(root_cause({none, none}).ok());
  CHECK(root_cause({none, of_a_peer, another}).message() == "rank 0: rank 2 closed the connection");
  CHECK(root_cause({of_a_peer, another, own}).message() == "rank 2: too many open files");
}

}  // namespace paceline
