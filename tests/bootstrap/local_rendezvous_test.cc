#include "bootstrap/local_rendezvous.h"

#include <dirent.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "bootstrap/ranks.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

// The directory in which ranks meet, for the time of one test.
class MeetingPlace {
 public:
  MeetingPlace() {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
    ::setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~MeetingPlace() {
    ::unsetenv("XDG_RUNTIME_DIR");
    for (const std::string& name : files()) ::unlink((path_ + "/" + name).c_str());
    ::rmdir(path_.c_str());
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    DIR* const directory = ::opendir(path_.c_str());
    while (const dirent* entry = ::readdir(directory))
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    ::closedir(directory);
    return names;
  }
  [[nodiscard]] std::string only_file() const {
    REQUIRE(files().size() == 1);
    return path_ + "/" + files()[0];
  }

 private:
  std::string path_ = "/tmp/paceline-test-XXXXXX";
};

Result<Rendezvous> meet(int rank, double timeout = 20) {
  return meet_on_this_node("job 1", rank, 2, "127.0.0.1", timeout);
}

// What rank 0 writes, with nobody behind it.
std::string stale_notice(int port) { return fmt::format("127.0.0.1 {} {}\n", port, std::string(64, 'a')); }

void put(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), 0600);
}

Status meet_and_join(int rank) {
  Result<Rendezvous> where = meet(rank);
  PACE_TRY(where.status());
  return join(std::move(*where)).status();
}

}  // namespace

TEST_CASE("rank 0's file is private, tells the others where, and goes with the rendezvous") {
  const MeetingPlace place;
  {
    const Result<Rendezvous> where = meet(0);
    REQUIRE(where.ok());
    struct stat about {};
    REQUIRE(::stat(place.only_file().c_str(), &about) == 0);
    CHECK((about.st_mode & 0777) == 0600);
    CHECK(where->secret.size() == 64);
    CHECK(port_of(local_address(where->listener.get())) == where->port);
  }
  CHECK(place.files().empty());
}

TEST_CASE("ranks meet in any order, also where a crashed job has left its file") {
  const MeetingPlace place;
  std::string path;
  {
    const Result<Rendezvous> where = meet(0);
    path = place.only_file();
  }
  const FileDescriptor silent = std::move(*listen_at("127.0.0.1", 0));  // another program now has the port
  for (const int port : {0, free_port(), port_of(local_address(silent.get()))}) {
    if (port != 0) put(path, stale_notice(port));
    const auto results = in_threads(2, [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(30ms);
      return meet_and_join(rank);
    });
    for (const Status& status : results) CHECK_MESSAGE(status.ok(), status.message());
    CHECK(place.files().empty());
  }
}

TEST_CASE("a file that others could have written is not believed, nor a link followed") {
  const MeetingPlace place;
  std::string path;
  PrivateDescriptor listener;
  {
    Result<Rendezvous> where = meet(0);
    listener = std::move(where->listener);
    path = place.only_file();
  }
  put(path, stale_notice(1));
  ::chmod(path.c_str(), 0644);
  CHECK(meet(1, 0.1).status().message().find("it has not written " + path) != std::string::npos);

  put(path + ".elsewhere", stale_notice(1));
  ::unlink(path.c_str());
  REQUIRE(::symlink((path + ".elsewhere").c_str(), path.c_str()) == 0);
  CHECK(meet(1, 0.1).status().message().find("it has not written " + path) != std::string::npos);
  // Rank 0 replaces the link, not what it points to.
  const Result<Rendezvous> where = meet(0);
  REQUIRE(where.ok());
  struct stat about {};
  CHECK(::lstat(path.c_str(), &about) == 0);
  CHECK(S_ISREG(about.st_mode));
}

TEST_CASE("a rank that has no descriptor left to look for rank 0 says so at once") {
  const MeetingPlace place;
  Child rank_1([](const Child::Say& say) {
    FileDescriptor next(::dup(0));
    const rlim_t most = static_cast<rlim_t>(next.get()) + 1;  // room for the directory alone
    next.reset();
    const rlimit limit{most, most};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const Status status = meet(1, 20).status();
    say(fmt::format("{} {}", status.detail().rank, status.message()));
  });
  const std::string line = rank_1.line();
  CHECK(line.starts_with("1 rank 1 ("));
  CHECK(line.find("cannot read") != line.npos);
  CHECK(line.ends_with("raise its limit with `ulimit -n`"));
}

TEST_CASE("what a late rank 0 has kept others waiting for is part of their time to join") {
  const MeetingPlace place;
  const auto joined = [](int rank, double timeout) {
    Result<Rendezvous> where = meet_on_this_node("job 1", rank, 3, "127.0.0.1", timeout);
    return where.ok() ? join(std::move(*where)).status() : where.status();
  };
  const auto results = in_threads(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(2s);
    const auto begin = Clock::now();
    Status status = joined(rank, rank == 0 ? 20 : 3);
    if (rank == 1) CHECK(Clock::now() - begin < 4500ms);
    return status;
  });
  for (const Status& status : results) CHECK(status.message().starts_with("rank 2 did not come to the rendezvous"));
}

TEST_CASE("without rank 0 the others say so, at the end of their time") {
  const MeetingPlace place;
  const Status status = meet(1, 0.1).status();
  CHECK(status.code() == Code::timeout);
  CHECK(status.detail().rank == 0);
  CHECK(status.message().starts_with("rank 0 did not come to the rendezvous within 0.1 s: it has not written /tmp/"));
}

TEST_CASE("who waits for rank 0 asks whether to go on") {
  const MeetingPlace place;
  const Interrupted soon;
  const auto begin = Clock::now();
  const Status status = meet(1).status();
  CHECK(status.code() == Code::aborted);
  CHECK(status.detail().rank == 1);
  CHECK(Clock::now() - begin < 5s);
}
