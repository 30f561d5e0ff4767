// What stands behind the C API's handles, and how its functions end.
//
// A communicator's handle stays where it is after paceCommDestroy, so that a use after it is an error by name.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/host_stream.h"
#include "paceline/paceline.h"

struct paceComm {
  static constexpr std::uint64_t valid = 0x70616365636f6d6dU;

  std::atomic<std::uint64_t> magic{valid};  // 0 after destroy
  std::unique_ptr<paceline::Communicator> communicator;
  std::mutex error_mutex;
  std::string last_error;  // under error_mutex
  // Operators made by paceRedOpCreatePreMulSum: number paceNumOps + index. Under error_mutex while made or destroyed.
  struct Operator {
    bool live = false;
    paceline::DataType type = paceline::DataType::float32;
    std::array<std::byte, 8> factor{};
  };
  std::vector<Operator> operators;
};

struct paceHostStream {
  static constexpr std::uint64_t valid = 0x7061636573747265U;

  std::uint64_t magic = valid;
  std::unique_ptr<paceline::HostStream> stream;
};

namespace paceline::api {

// Note the status as the last error of this thread (and of the communicator) and give its code.
paceResult_t finish(const Status& status, paceComm* comm = nullptr);

// Ok, or what is wrong with the handle.
Status check(paceComm* comm);
// The stream that the argument names; nullptr for none. An error for anything else.
Result<HostStream*> stream_of(void* stream);

paceComm* make_handle(std::unique_ptr<Communicator> communicator);

// Run the call now, queue it on the stream, or keep it for the end of this thread's group.
Status submit(paceComm* comm, const Request& request, void* stream);

}  // namespace paceline::api
