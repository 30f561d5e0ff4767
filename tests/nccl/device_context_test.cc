// Which device is current, in a process of its own: the fake driver stays loaded there.
#include "nccl/device_context.h"

#include <array>
#include <string>

#include "bootstrap/ranks.h"
#include "nccl/communicator.h"
#include "nccl/door.h"

using namespace paceline;
using namespace paceline::nccl;
using namespace paceline::testing;

namespace {

void load_driver() { (void)::dlopen(PACELINE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL); }

}  // namespace

TEST_CASE("without the driver no device is current, and entering none is nothing") {
  Child child([](const Child::Say& say) {
    DeviceContext::of_device(3).enter();
    say(std::to_string(DeviceContext::current().device()));
  });
  CHECK(child.line() == "-1");
}

TEST_CASE("the current device is kept and entered again") {
  Child child([](const Child::Say& say) {
    say(std::to_string(DeviceContext::current().device()));
    load_driver();
    DeviceContext::of_device(3).enter();
    const DeviceContext three = DeviceContext::current();
    DeviceContext::of_device(5).enter();
    say(std::to_string(DeviceContext::current().device()));
    three.enter();
    say(std::to_string(DeviceContext::current().device()));
  });
  CHECK(child.line() == "-1");
  CHECK(child.line() == "5");
  CHECK(child.line() == "3");
}

TEST_CASE("what comes from a communicator lives on its device, whatever device the calling thread has") {
  Child child([](const Child::Say& say) {
    load_driver();
    const Door door(has_engine, nullptr, nullptr);
    ncclComm_t parent = nullptr, made = nullptr;
    const int device = 5;
    (void)ncclCommInitAll(&parent, 1, &device);
    for (int current : {-1, 2}) {
      DeviceContext::of_device(current).restore();
      int found = -1;
      (void)ncclCommSplit(parent, 0, 0, &made, nullptr);
      (void)ncclCommCuDevice(made, &found);
      say(std::to_string(found));
      say(std::to_string(DeviceContext::current().device()));
      (void)ncclCommAbort(made);
    }
    (void)ncclCommAbort(parent);
  });
  for (const char* expected : {"5", "-1", "5", "2"}) CHECK(child.line() == std::string(expected));
}

TEST_CASE("a communicator that is a process's first use of CUDA is made on device 0") {
  Child child([](const Child::Say& say) {
    load_driver();
    const Door door(R"({"devices":1})");
    ncclComm_t comm = one_rank(1, 0);
    say(std::to_string(comm->device.device()));
    say(std::to_string(DeviceContext::current().device()));
    (void)ncclCommAbort(comm);
  });
  for (const char* expected : {"0", "-1"}) CHECK(child.line() == std::string(expected));
}

TEST_CASE("one thread's ranks are made on their devices, and its own stays") {
  Child child([](const Child::Say& say) {
    load_driver();
    const Door door(has_engine, nullptr, nullptr);
    DeviceContext::of_device(7).enter();
    ncclComm_t comms[2] = {};
    const int devices[2] = {5, 2};
    say(std::to_string(ncclCommInitAll(comms, 2, devices)));
    for (ncclComm_t comm : comms) {
      int device = -1;
      (void)ncclCommCuDevice(comm, &device);
      say(std::to_string(device));
    }
    say(std::to_string(DeviceContext::current().device()));
    for (ncclComm_t comm : comms) (void)ncclCommAbort(comm);
  });
  for (const char* expected : {"0", "5", "2", "7"}) CHECK(child.line() == std::string(expected));
}

TEST_CASE("no communicator sits on a device that there is not") {
  Child child([](const Child::Say& say) {
    load_driver();
    const Door door(R"({"devices":8})", nullptr, nullptr);
    ncclComm_t comms[10] = {};
    const int devices[] = {0, -1};
    for (int count : {2, 10}) {
      say(std::to_string(ncclCommInitAll(comms, count, count == 2 ? devices : nullptr)));
      say(last_error());
      say(comms[0] == nullptr ? "none" : "some");
    }
  });
  for (const char* device : {"-1", "8"}) {
    CHECK(child.line() == "4");
    CHECK(child.line() == std::string("ncclCommInitAll: there is no device ") + device);
    CHECK(child.line() == "none");
  }
}

TEST_CASE("a device that is there, but full, is not said to be missing") {
  Child child([](const Child::Say& say) {
    load_driver();
    ::setenv("FAKE_CUDA_FULL", "1", 1);
    const Door door(R"({"devices":8})", nullptr, nullptr);
    ncclComm_t comms[2] = {};
    say(std::to_string(ncclCommInitAll(comms, 2, nullptr)));
    say(last_error());
  });
  CHECK(child.line() == std::to_string(ncclUnhandledCudaError));
  CHECK(child.line() == "ncclCommInitAll: device 1 gives no context (cuDevicePrimaryCtxRetain)");
}
