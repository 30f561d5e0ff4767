// The C API as an exit handler calls it: after the main thread's thread_local variables have ended, and in part after
// the process's static ones.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "paceline/paceline.h"
#include "transport/child.h"

namespace paceline::testing {
namespace {

// Whether all was well when a process ended in which `before` ran: `handler` is its first exit handler, so it runs
// last.
bool ends_well(void (*before)(), void (*handler)()) {
  Child child([&] {
    std::atexit(handler);
    before();
    std::exit(2);
    return false;
  });
  return child.ended_well();
}

constexpr char request[] = R"({"preset": "dgx1-v100"})";

TEST_CASE("an answer that a thread had before is none in an exit handler's way") {
  CHECK(ends_well(
      [] {
        const char* answer = nullptr;
        if (paceTopology(request, &answer) != paceSuccess) ::_exit(3);
      },
      [] {
        const char* answer = nullptr;
        const bool again =
            paceTopology(request, &answer) == paceSuccess && paceTopology(request, &answer) == paceSuccess;
        ::_exit(again && std::strstr(answer, "gpu") != nullptr ? 0 : 1);
      }));
}

TEST_CASE("texts that the library keeps are whole in exit handlers") {
  static std::string build, tuning;
  CHECK(ends_well(
      [] {
        build = paceDescribe("build");
        tuning = paceTuningFile();
      },
      [] { ::_exit(build == paceDescribe("build") && tuning == paceTuningFile() ? 0 : 1); }));
}

TEST_CASE("a group that is open when a process ends can be ended in an exit handler") {
  static paceComm_t comm = nullptr;
  static float values[2] = {1, 0};
  CHECK(ends_well(
      [] {
        paceUniqueId id{};
        const bool begun = paceGetUniqueId(&id) == paceSuccess && paceCommInitRank(&comm, 1, id, 0) == paceSuccess &&
                           paceGroupStart() == paceSuccess &&
                           paceAllReduce(values, values + 1, 1, paceFloat32, paceSum, comm, nullptr) == paceSuccess;
        if (!begun) ::_exit(3);
      },
      [] { ::_exit(paceGroupEnd() == paceSuccess && values[1] == 1 ? 0 : 1); }));
}

}  // namespace
}  // namespace paceline::testing
