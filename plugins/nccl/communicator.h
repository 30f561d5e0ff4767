// What stands behind an ncclComm_t that a program gets from this library.
//
//   served by NCCL alone   no Paceline communicator; the real one is made at once
//   served by Paceline     a Paceline communicator; a real one beside it is made when a call first needs NCCL itself,
//                          by all ranks alike: such calls are made by all of them (windows, the device API), or the
//                          setting that forwards them is known to all of them when the communicator is made
//
// A handle stays where it is after the communicator's end, so that a use after it is an error by name.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device_context.h"
#include "errors.h"
#include "nccl_api.h"
#include "paceline/paceline.h"
#include "services.h"

namespace paceline::nccl {

// Why a call cannot be made now.
enum class State : std::uint32_t {
  ready = 0x6e63636c,
  making = 1,
  failed,
  finalized,
  revoked,
  suspended,
  splitting,
  destroying,  // waits for the calls that it still has; an abort ends them
  destroyed
};

// A program's ncclConfig_t, kept: whatever its size and version.
class Config {
 public:
  Config() = default;
  explicit Config(const ncclConfig_t* given);
  [[nodiscard]] bool nonblocking() const;
  // For the real library: a copy that blocks, whose texts are this one's (NCCL keeps the communicator's name where it
  // is); empty where the program gave none.
  [[nodiscard]] std::vector<std::byte> as_blocking() const;

 private:
  template <class Field>
  [[nodiscard]] bool has(Field ncclConfig_t::*field) const;
  std::vector<std::byte> bytes_;  // empty: none
  std::string net_name_, name_;
};

// A premulsum operator of a communicator that Paceline serves.
struct Operator {
  ncclScalarResidence_t residence = ncclScalarHostImmediate;
  ncclDataType_t type = ncclFloat32;
  void* device_scalar = nullptr;
  std::array<std::byte, 8> scalar{};
  paceRedOp_t pace = paceSum;
  int real = -1;  // the real library's, where a forwarded call needed it
};

}  // namespace paceline::nccl

struct ncclComm {
  std::atomic<paceline::nccl::State> state{paceline::nccl::State::making};
  paceComm_t pace = nullptr;               // nullptr: served by NCCL alone
  std::atomic<bool> finalizing{false};     // finalized, and still waiting for its calls
  ncclComm_t real = nullptr;               // written by the real library's threads too: read by real_of()
  paceline::nccl::Services forwarded = 0;  // of one that Paceline serves: what goes to NCCL nonetheless
  int rank = 0;
  int ranks = 0;
  bool made_behind = false;  // the program's back, on a thread of its own
  paceline::nccl::Config config;
  paceline::nccl::DeviceContext device;

  std::mutex mutex;  // of all below
  paceline::nccl::NotedError last_error;
  ncclResult_t result = ncclInProgress;  // of its making, then of its last children's behind the program's back
  bool unwanted = false;                 // aborted: who makes or destroys it puts it away
  bool ends_parent = false;              // its making does: NCCL_SHRINK_ABORT
  std::deque<const ncclComm*> unborn;    // made of this one, one after another; splitting while one is made behind
  std::condition_variable one_born;
  ncclUniqueId growth{};                              // of ncclCommGetUniqueId, until it grows
  std::map<int, paceline::nccl::Operator> operators;  // by their numbers, ncclNumOps and beyond
  std::set<void*> registrations;
};

namespace paceline::nccl {

// A new handle, for the life of the process.
ncclComm* make_handle(const ncclConfig_t* config);
// Whether a handle is NCCL's own. A program whose NCCL was loaded before us sends us such: there NCCL's calls of its
// own functions come here first, and go on to it as they are.
bool is_nccls(const ncclComm* comm);

// Acquire: pairs with the real library's store, after which its communicator can be used.
inline ncclComm_t real_of(const ncclComm* comm) { return __atomic_load_n(&comm->real, __ATOMIC_ACQUIRE); }

// For who ends it: of an abort and of a making that is given up meanwhile, only one. Acquire: as real_of(). The release
// orders nothing more.
inline ncclComm_t take_real(ncclComm* comm) { return __atomic_exchange_n(&comm->real, nullptr, __ATOMIC_ACQ_REL); }

// Whether Paceline serves this call of the communicator. The communicator is ready.
inline bool serves(const ncclComm* comm, Service service) {
  return comm->pace != nullptr && (comm->forwarded & bit(service)) == 0;
}

inline bool is_nonblocking(const ncclComm* comm) { return comm->config.nonblocking(); }
inline bool is_made_behind(const ncclComm* comm) { return comm->made_behind; }

// What a call finds. It asks once: a communicator that was not ready then takes none, whatever it is by now.
inline State state_of(const ncclComm* comm) {
  // Acquire: what the making thread wrote comes before.
  return comm == nullptr ? State::destroyed : comm->state.load(std::memory_order_acquire);
}
// One that takes no calls, for good or until it is resumed. What is registered with it is given back still: PyTorch
// does, also before it aborts what it has revoked.
inline bool out_of_use(State state) {
  return state == State::finalized || state == State::revoked || state == State::suspended;
}
// Of a revoked one, too, children can be made that need none of its calls.
inline bool can_be_parent(State state) { return state == State::ready || state == State::revoked; }
// For one in a state that is not ready: why not. `out_of_use`: the code for one that once was.
ncclResult_t refuse(ncclComm* comm, State state, const char* function, ncclResult_t out_of_use = ncclInvalidUsage);

// Whether the program has aborted it.
inline bool is_unwanted(ncclComm* comm) {
  const std::lock_guard lock(comm->mutex);
  return comm->unwanted;
}

// What has ended the communicator that Paceline serves; paceSuccess: nothing.
paceResult_t trouble_of(const ncclComm* comm);

// The real communicators of communicators that Paceline serves, where they have none: by all of their ranks, each in
// one call for all of its communicators. `function` needed them: where a rank has none such, it fails on all. Not
// longer than all ranks live and the program wants them. real_beside.cc
ncclResult_t make_real(const std::vector<ncclComm*>& comms, const char* function, bool exists = true);

// The number by which the real library knows an operator of the communicator.
ncclRedOp_t real_operator(ncclComm* comm, ncclRedOp_t op);

}  // namespace paceline::nccl
