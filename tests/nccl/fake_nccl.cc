// A stand-in for the real NCCL: every function of the lists, which writes down what it was called with.
//
// Communicators and their making act as NCCL's do: inside a group they are written at its end, unless a call of it was
// without a communicator; a nonblocking one, as all are with NCCL_COMM_BLOCKING=0, is in progress until it has been
// asked twice, which in a group only its end says, and a split, shrink or grow never does. It calls functions of its
// own where NCCL does. What a test drives it by is at the end.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nccl/nccl_api.h"

struct alignas(16) ncclComm {  // as malloc gives it
  static constexpr int mark = 0x46414b45;
  int magic = mark;
  int number = 0;
  int ranks = 0;
  int rank = 0;
  bool nonblocking = false;
  std::atomic<int> questions{0};  // until it is no more in progress
};

namespace {

std::atomic<bool> noting{true};
std::mutex mutex;  // of what follows
std::vector<std::string> log_lines;
std::map<std::string, ncclResult_t> failures;
std::deque<ncclComm> comms;

struct Pending {
  ncclComm_t* out;
  ncclComm_t made;
};
thread_local int depth = 0;
thread_local bool spoiled = false;
thread_local bool in_progress = false;  // the group's end is
thread_local std::vector<Pending> pending;

void put(std::ostream& text, ncclComm_t comm) {
  if (comm == nullptr)
    text << "null";
  else if (comm->magic == ncclComm::mark)
    text << "comm" << comm->number;
  else
    text << "a handle that is not mine";
}
void put(std::ostream& text, const ncclUniqueId& id) { text << "id" << static_cast<int>(id.internal[0]); }
void put(std::ostream& text, const ncclTeam_t& team) {
  text << "{" << team.nRanks << "," << team.rank << "," << team.stride << "}";
}
void put(std::ostream& text, const ncclMultimemHandle_t& handle) { text << handle.mcBasePtr; }
void put(std::ostream& text, const ncclConfig_t* config) {
  if (config == nullptr) {
    text << "null";
    return;
  }
  text << "config{" << config->size << "," << config->version << ",blocking=" << config->blocking
       << ",minCTAs=" << config->minCTAs << ",net=" << (config->netName == nullptr ? "null" : config->netName);
  if (config->size > offsetof(ncclConfig_t, nvlinkCentricSched)) text << ",nvlink=" << config->nvlinkCentricSched;
  if (config->size > offsetof(ncclConfig_t, numRmaCtx)) text << ",rma=" << config->numRmaCtx;
  if (config->size > offsetof(ncclConfig_t, graphStreamOrdering)) text << ",order=" << config->graphStreamOrdering;
  text << "}";
}
void put(std::ostream& text, ncclConfig_t* config) { put(text, static_cast<const ncclConfig_t*>(config)); }
template <class Value>
void put(std::ostream& text, Value value) {
  if constexpr (std::is_pointer_v<Value>)
    text << reinterpret_cast<std::uintptr_t>(value);
  else
    text << static_cast<long long>(value);
}

std::string described() { return {}; }
template <class First, class... Rest>
std::string described(const First& first, const Rest&... rest) {
  std::ostringstream text;
  put(text, first);
  ((text << ", ", put(text, rest)), ...);
  return text.str();
}

void note(const std::string& line) {
  const std::lock_guard lock(mutex);
  log_lines.push_back(line);
}

ncclResult_t failure_of(const char* name) {
  if (!noting.load(std::memory_order_relaxed)) return ncclSuccess;
  const std::lock_guard lock(mutex);
  const auto found = failures.find(name);
  return found == failures.end() ? ncclSuccess : found->second;
}

// `parent`: of a split or a shrink, which goes by its parent's configuration.
ncclResult_t make(ncclComm_t* out, int ranks, int rank, const ncclConfig_t* config = nullptr,
                  const ncclComm* parent = nullptr) {
  if (config != nullptr && config->magic != NCCL_API_MAGIC) return ncclInvalidArgument;
  const std::lock_guard lock(mutex);
  ncclComm& made = comms.emplace_back();
  made.number = static_cast<int>(comms.size());
  made.ranks = ranks;
  made.rank = rank;
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");
  const bool inherits = config == nullptr && parent != nullptr;
  made.nonblocking = blocking != nullptr ? *blocking == '0'
                     : inherits          ? parent->nonblocking
                                         : config != nullptr && config->blocking == 0;
  if (parent == nullptr ? made.nonblocking : parent->nonblocking) {
    made.questions = 2;
    *out = &made;
    if (depth == 0) return ncclInProgress;
    in_progress = true;
    return ncclSuccess;
  }
  if (depth > 0)
    pending.push_back({out, &made});
  else
    *out = &made;
  return ncclSuccess;
}

ncclResult_t begun(ncclResult_t result) { return result == ncclInProgress ? ncclSuccess : result; }

// What a function does besides being noted.
template <class Tag>
struct Act {
  template <class Answer, class... Arguments>
  static Answer run(Arguments...) {
    if constexpr (!std::is_void_v<Answer>) return Answer{};
  }
};

#define FAKE_TAG(since, result, name, parameters, arguments) struct name##_tag;
PACE_NCCL_FUNCTIONS(FAKE_TAG)

#define FAKE_ACT(name, ...)         \
  template <>                       \
  struct Act<name##_tag> {          \
    template <class Answer>         \
    static Answer run(__VA_ARGS__); \
  };                                \
  template <class Answer>           \
  Answer Act<name##_tag>::run(__VA_ARGS__)

FAKE_ACT(ncclGetVersion, int* version) {
  std::free(::realpath("/", nullptr));  // as NCCL does where it looks at devices: what the C library has allocated
  *version = 23007;
  return ncclSuccess;
}
FAKE_ACT(ncclGetUniqueId, ncclUniqueId* id) {
  static std::atomic<char> next{1};
  *id = {};
  id->internal[0] = next++;
  return ncclSuccess;
}
FAKE_ACT(ncclGetLastError, ncclComm_t) { return "the fake's last error"; }
FAKE_ACT(ncclCommInitRank, ncclComm_t* comm, int ranks, const ncclUniqueId&, int rank) {
  return make(comm, ranks, rank);
}
FAKE_ACT(ncclCommInitRankConfig, ncclComm_t* comm, int ranks, const ncclUniqueId&, int rank, ncclConfig_t* config) {
  return make(comm, ranks, rank, config);
}
FAKE_ACT(ncclCommInitRankScalable, ncclComm_t* comm, int ranks, int rank, int, ncclUniqueId*, ncclConfig_t* config) {
  return make(comm, ranks, rank, config);
}
FAKE_ACT(ncclCommInitAll, ncclComm_t* made, int devices, const int*) {
  ncclUniqueId id;
  (void)ncclGetUniqueId(&id);
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < devices; ++i) result = make(&made[i], devices, i);
  return result;
}
FAKE_ACT(ncclCommSplit, ncclComm_t comm, int color, int, ncclComm_t* made, ncclConfig_t* config) {
  return color < 0 ? ncclSuccess : begun(make(made, comm->ranks, comm->rank, config, comm));
}
FAKE_ACT(ncclCommShrink, ncclComm_t comm, int*, int count, ncclComm_t* made, ncclConfig_t* config, int) {
  return begun(make(made, comm->ranks - count, comm->rank, config, comm));
}
FAKE_ACT(ncclCommGrow, ncclComm_t, int ranks, const ncclUniqueId*, int rank, ncclComm_t* made, ncclConfig_t* config) {
  return begun(make(made, ranks, rank, config));
}
FAKE_ACT(ncclCommCount, ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return ncclSuccess;
}
FAKE_ACT(ncclCommUserRank, ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
FAKE_ACT(ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* error) {
  const ncclResult_t failed = failure_of("asynchronously");
  *error = failed != ncclSuccess ? failed : comm->questions-- > 0 ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
FAKE_ACT(ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) {
  *op = static_cast<ncclRedOp_t>(77);
  return ncclSuccess;
}
FAKE_ACT(ncclCommRegister, ncclComm_t, void*, size_t, void** handle) {
  *handle = reinterpret_cast<void*>(0x1234);
  return ncclSuccess;
}
FAKE_ACT(ncclBcast, void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
FAKE_ACT(ncclTeamWorld, ncclComm_t comm) { return {comm->ranks, comm->rank, 1}; }
FAKE_ACT(ncclLLA2ACalcSlots, int elements, int bytes) { return elements * bytes; }
FAKE_ACT(ncclAllReduce, const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm, cudaStream_t) {
  if (comm != nullptr) return ncclSuccess;
  spoiled = depth > 0;
  return ncclInvalidArgument;
}
FAKE_ACT(ncclGroupStart) {
  ++depth;
  return ncclSuccess;
}
FAKE_ACT(ncclGroupEnd) {
  if (--depth > 0) return ncclSuccess;
  const bool runs = !std::exchange(spoiled, false), waits = std::exchange(in_progress, false);
  for (const Pending& one : std::exchange(pending, {}))
    if (runs) *one.out = one.made;
  if (!runs) return ncclInvalidArgument;
  return waits ? ncclInProgress : ncclSuccess;
}
FAKE_ACT(ncclGroupSimulateEnd, ncclSimInfo_t* info) {
  --depth;
  info->estimatedTime = 12.5F;
  return ncclSuccess;
}

template <class Answer, class Run>
Answer unless_it_fails(const char* name, Run run) {
  if constexpr (std::is_same_v<Answer, ncclResult_t>) {
    if (ncclResult_t failed = failure_of(name); failed != ncclSuccess) {
      if (std::strcmp(name, "ncclGroupEnd") == 0) (void)run();  // a group that fails has ended too
      return failed;
    }
  }
  return run();
}

}  // namespace

#define FAKE_FUNCTION(since, result, name, parameters, arguments)                                           \
  extern "C" result name parameters {                                                                       \
    if (noting.load(std::memory_order_relaxed)) note(#name "(" + described arguments + ")");                \
    return unless_it_fails<result>(#name, [&] { return Act<name##_tag>::template run<result> arguments; }); \
  }
PACE_NCCL_FUNCTIONS(FAKE_FUNCTION)

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// The calls so far, a line each; forgets them.
FAKE_EXPORT const char* fakeNcclCalls() {
  thread_local std::string text;
  const std::lock_guard lock(mutex);
  text.clear();
  for (const std::string& line : log_lines) text += line + "\n";
  log_lines.clear();
  return text.c_str();
}

// From now on the function fails so ("asynchronously": the communicators do); ncclSuccess: no more.
FAKE_EXPORT void fakeNcclFail(const char* name, int code) {
  const std::lock_guard lock(mutex);
  failures[name] = static_cast<ncclResult_t>(code);
}

// Do nothing at all, for benchmarks.
FAKE_EXPORT void fakeNcclSilence() { noting = false; }
