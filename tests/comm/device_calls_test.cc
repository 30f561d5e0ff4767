// What is told of GPUs that gave up, with an engine that does nothing but say so.
#include "comm/device_calls.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/written.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/fake_driver.h"
#include "engine/fakes.h"

namespace paceline {
namespace {

class FakeEngine final : public cuda::GpuEngine {
 public:
  // ---- For the test ----
  std::optional<cuda::Complaint> says;
  std::optional<cuda::LongKernelWait> waits;
  mutable std::atomic<int> looks = 0;
  std::vector<int> leavers;
  int finished = 0;
  Status ends;
  std::atomic<bool>* may_end = nullptr;  // its end waits for that

  ~FakeEngine() override {
    while (may_end != nullptr && !*may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (may_end != nullptr) *may_end = false;
  }

  // ---- The interface ----
  Status run(const Request&, void*) override { return {}; }
  Status run_schedule(const Request&, const cuda::Forced&, void*) override { return {}; }
  Status run_messages(std::span<const Request>, void*) override { return {}; }
  Status order(void*, void*) override { return {}; }
  void let_go() override {}
  void use_tables(std::span<const GpuSetting>) override {}
  [[nodiscard]] int device() const override { return 0; }
  [[nodiscard]] const GpuMachine& machine() const override { return machine_; }
  [[nodiscard]] const GpuChoice& choice() const override { return choice_; }
  void abort() override {}
  void left(int rank) override { leavers.push_back(rank); }
  Status finish() override {
    ++finished;
    return ends;
  }
  Result<std::uint64_t> direct_calls() override { return std::uint64_t{0}; }
  [[nodiscard]] std::optional<cuda::Complaint> complaint() const override { return says; }
  [[nodiscard]] std::optional<cuda::LongKernelWait> long_wait() const override {
    ++looks;
    return waits;
  }

 private:
  GpuMachine machine_;
  GpuChoice choice_;
};

struct Calls {
  FakeMembership membership;
  std::unique_ptr<DeviceCalls> calls;
  FakeEngine* engine;

  Calls() {
    const std::vector<Member> members = {{"node-a", "a", "", 100}, {"node-a", "a", "", 101}, {"node-a", "a", "", 102}};
    calls = std::make_unique<DeviceCalls>(members, 0, 20, membership);
    auto made = std::make_unique<FakeEngine>();
    engine = made.get();
    calls->use(std::move(made));
  }
};

cuda::Complaint about(int rank) {
  cuda::Complaint complaint;
  complaint.rank = rank;
  complaint.mine = make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, 10, 3);
  return complaint;
}

TEST_CASE("the engine learns who has left, until there is no engine") {
  Calls here;
  here.membership.tell_of_leavers(2);
  CHECK(here.engine->leavers == std::vector<int>{2});
  here.calls.reset();
  CHECK_FALSE(static_cast<bool>(here.membership.tell_of_leavers));
}

TEST_CASE("a kernel that goes on waiting is told of") {
  FakeEngine engine;
  KernelWaits waits(engine, 0, 20);
  const auto logged = [&] { return testing::written([&] { waits.look(); }); };
  const auto logged_after = [&](int rank, double seconds) {
    const Call call = make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, 0, 0);
    engine.waits = cuda::LongKernelWait{rank, call, seconds};
    return logged();
  };
  CHECK(logged().empty());
  CHECK(logged_after(2, 59.5).empty());  // info
  const auto told = logged_after(2, 60.5);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("a kernel has waited 60 s for rank 2 to come to all-reduce on its GPU; gives up after 20 s") !=
        std::string::npos);
  CHECK(logged_after(2, 61.5).empty());  // told already
  CHECK(logged().empty());               // it says nothing new: it waits no more
  CHECK(logged_after(1, 60.5).size() == 1);
}

TEST_CASE("a thread looks each second, until there is no engine") {
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::steady_clock::now() - begin; };
  const Calls here;
  while (here.engine->looks < 2 && since() < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(here.engine->looks >= 2);
  CHECK(since() >= std::chrono::seconds(2));
}

TEST_CASE("a kernel that waited for a rank that had left names it, and all ranks are told") {
  Calls here;
  here.engine->says = about(2);
  here.engine->says->left = true;
  CHECK_FALSE(here.calls->failure().ok());
  REQUIRE(here.membership.reports.size() == 1);
  const Status& told = here.membership.reports[0];
  CHECK(told.code() == Code::remote);
  CHECK(told.detail().rank == 2);
  CHECK(told.detail().host == "node-a");
  CHECK(told.message().find("rank 2 (node-a, pid 102) left before all-reduce") == 0);
  CHECK(told.message().find("on its GPU: it closed its communicator, or its program ended") != std::string::npos);
}

TEST_CASE("a kernel whose time was up says so") {
  Calls here;
  here.engine->says = about(1);
  CHECK_FALSE(here.calls->failure().ok());
  REQUIRE(here.membership.reports.size() == 1);
  CHECK(here.membership.reports[0].code() == Code::timeout);
  CHECK(here.membership.reports[0].message().find("rank 1 (node-a, pid 101) did not come to all-reduce") == 0);
}

TEST_CASE("calls that are the same but for how they go say so") {
  const auto told = [](auto change) {
    Calls here;
    cuda::Complaint complaint = about(1);
    complaint.mismatch = true;
    complaint.other = complaint.mine;
    change(complaint);
    here.engine->says = complaint;
    CHECK(here.calls->failure().code() == Code::mismatch);
    return here.membership.reports.at(0).message();
  };
  const auto goes = [](Call& call, std::uint16_t way) { call.size = with_way(call.size, way); };
  const std::string algorithms = told([&](cuda::Complaint& complaint) {
    complaint.by = "ring";
    complaint.other_by = "chain";
    goes(complaint.mine, 1);
  });
  CHECK(algorithms.find("by ring, but rank 1 by chain: force the same algorithm") != std::string::npos);
  const std::string chunks = told([&](cuda::Complaint& complaint) {
    complaint.by = complaint.other_by = "ring";
    goes(complaint.mine, 1);
    goes(complaint.other, 2);
  });
  CHECK(chunks.find("by different algorithms, chunks or radices") != std::string::npos);
  const std::string tables = told([](cuda::Complaint& complaint) { complaint.other_table = true; });
  CHECK(tables.find("by another table than rank 1") != std::string::npos);
  const std::string graphs = told([&](cuda::Complaint& complaint) {
    goes(complaint.mine, 6);
    goes(complaint.other, 7);
  });
  CHECK(graphs.find("rank 0 replays a graph's all-reduce") == 0);
  CHECK(graphs.find("was not captured together with rank 1's") != std::string::npos);
  const std::string eager_here = told([&](cuda::Complaint& complaint) { goes(complaint.other, 7); });
  CHECK(eager_here.find("rank 1 replays a graph's all-reduce") == 0);
  CHECK(eager_here.find("by the copy engines, but rank 0 makes the call without them") != std::string::npos);
  const std::string eager_there = told([&](cuda::Complaint& complaint) { goes(complaint.mine, 7); });
  CHECK(eager_there.find("rank 0 replays a graph's all-reduce") == 0);
  CHECK(eager_there.find("by the copy engines, but rank 1 makes the call without them") != std::string::npos);
}

TEST_CASE("a buffer in the memory of another GPU is refused") {
  const Calls here;
  Request request;
  request.which = Collective::all_reduce;
  request.send_gpu = request.recv_gpu = 0;
  CHECK(here.calls->check_memory(request, nullptr).ok());
  request.recv_gpu = 1;
  const Status refused = here.calls->check_memory(request, nullptr);
  CHECK(refused.code() == Code::invalid_argument);
  CHECK(refused.message().find("all-reduce: the receive buffer is in the memory of GPU 1, but rank 0 uses GPU 0") == 0);
  request = {.which = Collective::send, .send_gpu = 2};
  CHECK(here.calls->check_memory(request, nullptr).message().find("send: the send buffer is in the memory of GPU 2") ==
        0);
}

TEST_CASE("another GPU's memory is used if it is managed, or the stream is of the communicator's GPU") {
  testing::with_fake_driver([](const testing::FakeDriver& driver) {
    testing::FakeRange range(driver, testing::fake_granularity);
    range.map(0, testing::fake_granularity, 1, 1);
    const Calls here;
    const Request request{.which = Collective::recv, .recv = range.at(8), .recv_gpu = cuda::device_of(range.at(8))};
    REQUIRE(request.recv_gpu == 1);
    int devices[] = {0, 1};  // which the stand-in has for streams
    void* const legacy = reinterpret_cast<void*>(1);
    REQUIRE(here.calls->check_memory(request, &devices[0]).ok());
    for (void* stream : {static_cast<void*>(nullptr), legacy, static_cast<void*>(&devices[1])})
      REQUIRE_FALSE(here.calls->check_memory(request, stream).ok());
    REQUIRE(driver.call("fake_cuda_manage", reinterpret_cast<std::uint64_t>(range.at(0))) == 0);
    REQUIRE(here.calls->check_memory(request, nullptr).ok());
  });
}

TEST_CASE("in a forked child the end asks nothing of the engine, nor of the session") {
  Calls here;
  here.engine->says = about(1);
  const ::pid_t child = ::fork();
  if (child == 0) {
    here.calls->finish();
    here.calls.reset();
    const bool untouched = here.engine->finished == 0 && here.membership.reports.empty() &&
                           static_cast<bool>(here.membership.tell_of_leavers);
    ::_exit(untouched ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("the end waits for the kernels, and tells what one gave up for") {
  Calls here;
  here.calls->finish();
  CHECK(here.engine->finished == 1);
  CHECK(here.membership.reports.empty());
  here.engine->says = about(1);
  here.calls->finish();
  CHECK(here.engine->finished == 2);
  CHECK(here.membership.reports.size() == 1);
}

TEST_CASE("calls that do not end are told to all ranks, unless a kernel has said why") {
  Calls here;
  here.engine->ends = Status(Code::timeout, "none has ended");
  here.calls->finish();
  REQUIRE(here.membership.reports.size() == 1);
  CHECK(here.membership.reports[0].code() == Code::timeout);
  CHECK(here.membership.reports[0].detail().rank == 0);
  CHECK(here.membership.reports[0].message() == "rank 0: none has ended");
  here.engine->says = about(1);
  here.calls->finish();
  REQUIRE(here.membership.reports.size() == 2);
  CHECK(here.membership.reports[1].message().find("rank 1 (node-a, pid 101) did not come") == 0);
}

TEST_CASE("an engine whose end takes long is left to end by itself") {
  Calls here;
  std::atomic<bool> may_end = false;
  here.engine->may_end = &may_end;
  const auto begin = std::chrono::steady_clock::now();
  here.calls.reset();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  may_end = true;
  while (may_end && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK_FALSE(may_end);
}

}  // namespace
}  // namespace paceline
