// Groups with calls on GPU memory that fail before any GPU is asked for: they need none.
#include <doctest/doctest.h>

#include <barrier>
#include <string>

#include "api/handle.h"
#include "comm/scarce_memory.h"
#include "comm/threads.h"
#include "cuda/driver/device.h"

namespace paceline::testing {
namespace {

// What paceAllReduce does with a buffer on a GPU, once it has found out.
paceResult_t all_reduce_on_device(paceComm_t comm, float* value, std::size_t count = 1) {
  auto* const bytes = reinterpret_cast<std::byte*>(value);
  const Request request{
      .which = Collective::all_reduce, .send = bytes, .recv = bytes, .count = count, .type = DataType::float32};
  const api::Arguments arguments{Collective::all_reduce, value, value, count, paceFloat32, paceSum, 0};
  return api::finish(api::submit(comm, arguments, {request, {true, true}, true}, nullptr), comm);
}

std::string all_reduce(paceComm_t comm, paceResult_t wanted) {
  float value = 1;
  return expect(paceAllReduce(&value, &value, 1, paceFloat32, paceSum, comm, nullptr), wanted);
}

TEST_CASE("a group that fails on a GPU ends the communicators whose calls it does not make, on host memory too") {
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.timeoutSeconds = 20;
  const Ranks failing(2, config);
  const Ranks on_device(2, config);
  const Ranks on_host(2, config);
  const Ranks idle(2, config);
  on_every_rank(2, [&](int rank) -> std::string {
    if (rank == 0) {
      float value = 1;
      PACE_EXPECT(paceCommAbort(failing[0]));
      PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceAllReduce(&value, &value, 1, paceFloat32, paceSum, on_host[0], nullptr));
      PACE_EXPECT(all_reduce_on_device(failing[0], &value));
      PACE_EXPECT(all_reduce_on_device(on_device[0], &value));
      PACE_EXPECT(paceGroupEnd(), paceAborted);
    } else {
      for (const Ranks* waiting : {&on_device, &on_host}) {
        if (auto wrong = all_reduce((*waiting)[1], paceRemoteError); !wrong.empty()) return wrong;
        const std::string told = paceGetLastError((*waiting)[1]);
        PACE_REQUIRE(told.find("rank 0") != std::string::npos);
        PACE_REQUIRE(told.find("broke off its group of calls: another communicator failed in it") != std::string::npos);
      }
    }
    return all_reduce(idle[rank], paceSuccess);
  });
}

TEST_CASE("a group whose first call on a GPU cannot be made for its arguments leaves all as it was") {
  const Ranks taken(2);
  const Ranks other(2);
  on_every_rank(2, [&](int rank) -> std::string {
    if (rank == 0) {
      float value = 1;
      PACE_REQUIRE(taken[0]->communicator->enter());
      PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceAllReduce(&value, &value, 1, paceFloat32, paceSum, other[0], nullptr));
      PACE_EXPECT(all_reduce_on_device(taken[0], &value));
      PACE_EXPECT(paceGroupEnd(), paceInvalidUsage);
      taken[0]->communicator->exit();
    }
    if (auto wrong = all_reduce(taken[rank], paceSuccess); !wrong.empty()) return wrong;
    return all_reduce(other[rank], paceSuccess);
  });
}

// Rank 0 has a group that is refused for a call on `refusing`, and has one that would begin first. Then all ranks make
// calls on both.
void check_refused(auto refused, paceResult_t wanted) {
  float value = 1;
  paceHostStream_t stream = nullptr;
  REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.timeoutSeconds = 5;
  for (const bool on_device : {false, true}) {
    const Ranks first(2, config);
    const Ranks refusing(2, config);
    on_every_rank(2, [&](int rank) -> std::string {
      if (rank == 0) {
        PACE_EXPECT(paceGroupStart());
        PACE_EXPECT(on_device ? all_reduce_on_device(first[0], &value, 0) : paceBarrier(first[0], stream));
        PACE_EXPECT(refused(refusing[0]));
        PACE_EXPECT(paceGroupEnd(), wanted);
        PACE_EXPECT(paceHostStreamSynchronize(stream));
        refusing[0]->communicator->exit();
      }
      if (auto wrong = all_reduce(first[rank], paceSuccess); !wrong.empty()) return wrong;
      return all_reduce(refusing[rank], paceSuccess);
    });
  }
  CHECK(paceHostStreamDestroy(stream) == paceSuccess);
}

TEST_CASE("a group with a message to itself that it does not receive starts nothing, on streams and on GPUs neither") {
  const float value = 1;
  check_refused([&](paceComm_t comm) { return paceSend(&value, 1, paceFloat32, 0, comm, nullptr); }, paceMismatch);
}

TEST_CASE("a group on a communicator that another thread is inside starts nothing, on streams and on GPUs neither") {
  const auto inside = [](paceComm_t comm) {
    comm->communicator->enter();  // the other thread: until the group has ended
    return paceBarrier(comm, nullptr);
  };
  check_refused(inside, paceInvalidUsage);
}

TEST_CASE("a first call on GPU memory that another rank does not make is called so") {
  if (!built_with_cuda()) return;  // known without the other ranks
  const Ranks communicator(2);
  on_every_rank(2, [&](int rank) -> std::string {
    float value = 1;
    PACE_EXPECT(rank == 0 ? all_reduce_on_device(communicator[0], &value)
                          : paceAllReduce(&value, &value, 1, paceFloat32, paceSum, communicator[1], nullptr),
                paceMismatch);
    const std::string reason = paceGetLastError(communicator[rank]);
    PACE_REQUIRE(reason.find("called first call on GPU memory #") != std::string::npos);
    PACE_REQUIRE(reason.find("called all-reduce #") != std::string::npos);
    return "";
  });
}

TEST_CASE("a call on GPU memory that one rank cannot begin ends its communicator, whose other ranks learn why") {
  if (built_with_cuda()) return;                          // a GPU would be asked for
  constexpr std::size_t too_long = std::size_t{1} << 45;  // no copy of it finds room
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.timeoutSeconds = 5;
  for (const bool in_group : {false, true}) {
    const Ranks communicator(2, config);
    on_every_rank(2, [&](int rank) -> std::string {
      float value = 1;
      const auto is_told = [&](paceResult_t result) -> std::string {
        PACE_EXPECT(result, paceRemoteError);
        const std::string told = paceGetLastError(communicator[rank]);
        PACE_REQUIRE(told.find("rank 0 (") == 0);
        const std::string what = in_group ? "broke off its group of calls" : "could not begin its all-reduce";
        PACE_REQUIRE(told.find(what + ": allocating scratch memory") != std::string::npos);
        return "";
      };
      if (rank == 1) return is_told(paceAllReduce(&value, &value, 1, paceFloat32, paceSum, communicator[1], nullptr));
      if (in_group) PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(all_reduce_on_device(communicator[0], &value, too_long), in_group ? paceSuccess : paceSystemError);
      if (in_group) PACE_EXPECT(paceGroupEnd(), paceSystemError);
      return is_told(all_reduce_on_device(communicator[0], &value));
    });
  }
}

TEST_CASE("a rank that lacks memory while the ranks' GPUs are connected ends the communicator for all, and says why") {
  bool lacks = true;
  for (long nth = 1; lacks; ++nth) {
    const Ranks communicator(2);
    std::barrier<> met(2);
    communicator.run([&](int rank, paceComm_t comm) -> std::string {
      if (rank == 0) fail_allocation(nth);
      const Status status = comm->communicator->meet_on_gpus();
      if (rank == 0) lacks = !spare_allocation();
      PACE_REQUIRE(rank == 1 || status.ok() != lacks);
      met.arrive_and_wait();
      const char* table = nullptr;
      PACE_REQUIRE(lacks || paceCommGpuTable(comm, &table) == paceSuccess ||
                   std::string(paceGetLastError(comm)).find("launched by no table (") != std::string::npos);
      if (std::string wrong = all_reduce(comm, lacks ? paceRemoteError : paceSuccess); !wrong.empty()) return wrong;
      const std::string why = paceGetLastError(comm);
      // In what it does itself, or in what it tells the others for it, where the failure has a name of its own.
      const bool names_it = why.starts_with("rank 0 (") && (why.ends_with(": std::bad_alloc") ||
                                                            why.find("Cannot allocate memory") != std::string::npos);
      if (lacks && !names_it) return why;
      return "";
    });
  }
}

}  // namespace
}  // namespace paceline::testing
