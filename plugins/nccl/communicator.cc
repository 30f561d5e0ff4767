#include "communicator.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <unordered_set>

#include "errors.h"
#include "real_library.h"

namespace paceline::nccl {
namespace {

// NCCL's own fields end long before: more is no ncclConfig_t.
constexpr std::size_t largest_config = 4096;

struct Handles {
  std::mutex mutex;
  std::deque<ncclComm> all;  // they stay where they are
  std::unordered_set<const ncclComm*> known;
};
Handles& handles() {
  static auto* made = new Handles;
  return *made;
}

const char* reason_of(State state) {
  switch (state) {
    case State::making: return "the communicator is still being made (ncclCommGetAsyncError says when it is ready)";
    case State::failed: return "the making of the communicator failed";
    case State::finalized: return "the communicator has been finalized";
    case State::revoked: return "the communicator has been revoked";
    case State::suspended: return "the communicator is suspended (ncclCommResume)";
    case State::splitting:
      return "another communicator is still being made from this one (ncclCommGetAsyncError says when it is ready)";
    case State::destroying: return "another thread destroys the communicator";
    case State::ready: return "the communicator is in use";
    default: return "the communicator has been destroyed, or is none";
  }
}

}  // namespace

template <class Field>
bool Config::has(Field ncclConfig_t::*field) const {
  static constexpr ncclConfig_t sample{};
  const auto* end = reinterpret_cast<const std::byte*>(&(sample.*field)) + sizeof(Field);
  return bytes_.size() >= static_cast<std::size_t>(end - reinterpret_cast<const std::byte*>(&sample));
}

Config::Config(const ncclConfig_t* given) {
  if (given == nullptr || given->size < offsetof(ncclConfig_t, blocking) || given->size > largest_config) return;
  if (given->magic != NCCL_API_MAGIC) return;  // who makes the communicator refuses it: its texts may be anywhere
  bytes_.resize(given->size);
  std::memcpy(bytes_.data(), given, given->size);
  // The program's texts need not outlive its call.
  if (has(&ncclConfig_t::netName) && given->netName != nullptr) net_name_ = given->netName;
  if (has(&ncclConfig_t::commName) && given->commName != nullptr) name_ = given->commName;
}

bool Config::nonblocking() const {
  return has(&ncclConfig_t::blocking) && reinterpret_cast<const ncclConfig_t*>(bytes_.data())->blocking == 0;
}

std::vector<std::byte> Config::as_blocking() const {
  std::vector<std::byte> copy = bytes_;
  auto* config = reinterpret_cast<ncclConfig_t*>(copy.data());
  if (has(&ncclConfig_t::netName) && config->netName != nullptr) config->netName = net_name_.c_str();
  if (has(&ncclConfig_t::commName) && config->commName != nullptr) config->commName = name_.c_str();
  if (has(&ncclConfig_t::blocking)) config->blocking = 1;
  return copy;
}

ncclComm* make_handle(const ncclConfig_t* config) {
  const std::lock_guard lock(handles().mutex);
  ncclComm& handle = handles().all.emplace_back();
  handles().known.insert(&handle);
  handle.config = Config(config);
  return &handle;
}

bool is_nccls(const ncclComm* comm) {
  if (comm == nullptr) return false;
  const std::lock_guard lock(handles().mutex);
  return handles().known.count(comm) == 0;
}

ncclResult_t refuse(ncclComm* comm, State state, const char* function, ncclResult_t out_of_use) {
  if (comm == nullptr) return fail(nullptr, ncclInvalidArgument, fmt::format("{}: the communicator is NULL", function));
  const bool is_one = state == State::ready || (state >= State::making && state < State::destroyed);
  // NCCL calls an early use, and one that is too late, a wrong argument.
  const bool usage = is_one && state != State::making && state != State::splitting && state != State::destroying;
  return fail(is_one ? comm : nullptr, usage ? out_of_use : ncclInvalidArgument,
              fmt::format("{}: {}", function, reason_of(state)));
}

paceResult_t trouble_of(const ncclComm* comm) {
  paceResult_t trouble = paceSuccess;
  // The query fails where an abort has freed it meanwhile.
  return paceCommGetAsyncError(comm->pace, &trouble) == paceSuccess ? trouble : paceAborted;
}

ncclRedOp_t real_operator(ncclComm* comm, ncclRedOp_t op) {
  if (comm->pace == nullptr || op < ncclNumOps) return op;
  const std::lock_guard lock(comm->mutex);
  const auto found = comm->operators.find(op);
  if (found == comm->operators.end()) return op;  // NCCL refuses it
  Operator& made = found->second;
  if (made.real < 0) {
    ncclRedOp_t real_op{};
    void* scalar = made.residence == ncclScalarDevice ? made.device_scalar : made.scalar.data();
    if (real()->ncclRedOpCreatePreMulSum(&real_op, scalar, made.type, made.residence, real_of(comm)) != ncclSuccess)
      return op;
    made.real = static_cast<int>(real_op);
  }
  return static_cast<ncclRedOp_t>(made.real);
}

}  // namespace paceline::nccl
