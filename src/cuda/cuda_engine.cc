// The CUDA engine is made by all ranks together, and ends alone.
#include "cuda/cuda_engine.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "base/configuration.h"
#include "base/fixed_text.h"
#include "base/log.h"
#include "cuda/calls/exchange.h"
#include "cuda/device_plan_cache.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/runtime.h"
#include "cuda/kernels/kernels.h"
#include "cuda/memory/registration.h"
#include "schedule/problem.h"

namespace paceline::cuda {

// What a rank shows the others.
struct Card {
  std::uint64_t process = 0;
  std::uint64_t window = 0;
  std::int32_t device = 0;
  std::int32_t blocks = 0;  // of a kernel that moves short messages, at most
  std::int32_t multiprocessors = 0;
  std::int32_t shared_by_mps = 0;  // whether processes' kernels run side by side
  std::array<char, 32> bus{};      // PCI address: the GPU's name across processes
  cudaIpcMemHandle_t handle{};
  std::array<char, 64> board{};  // of its registration; empty: it has none
  std::array<char, 64> gpu{};
  std::uint64_t table = 0;          // digest of the one that it goes by; second time
  std::array<char, 256> trouble{};  // empty: none
};

namespace {

static_assert(most_gpu_blocks == strip_blocks);

// How long a rank that leaves waits for the others to let go of its window.
constexpr auto farewell_time = std::chrono::milliseconds(500);

// Two ranks with the same number are in one process, also where process numbers have several namespaces.
std::uint64_t process_token() {
  static const std::uint64_t token = [] {
    std::random_device random;
    return (static_cast<std::uint64_t>(random()) << 32 | random()) ^ static_cast<std::uint64_t>(getpid());
  }();
  return token;
}

// Who of this process uses a window: the last one to let go of it frees it.
class WindowUsers {
 public:
  static void add(std::byte* window) {
    const std::lock_guard lock(mutex());
    ++users()[window];
  }
  // Another rank's: false where that has let go of it already.
  [[nodiscard]] static bool join(std::byte* window) {
    const std::lock_guard lock(mutex());
    const auto found = users().find(window);
    if (found == users().end()) return false;
    ++found->second;
    return true;
  }
  static void drop(std::byte* window) {
    {
      const std::lock_guard lock(mutex());
      const auto found = users().find(window);
      if (found == users().end() || --found->second > 0) return;
      users().erase(found);
    }
    (void)cudaFree(window);  // may wait for kernels, and these for a thread that makes a communicator
  }

 private:
  // Never destroyed: an engine may end after them, with a global object of the program's.
  static std::mutex& mutex() {
    static auto* one = new std::mutex;
    return *one;
  }
  static std::map<std::byte*, int>& users() {
    static auto* one = new std::map<std::byte*, int>;
    return *one;
  }
};

bool any_share_a_gpu(const std::vector<Card>& cards) {
  std::set<std::string_view> seen;
  return std::ranges::any_of(cards, [&](const Card& card) { return !seen.insert(card.bus.data()).second; });
}

// Kernels of ranks wait for each other, so those that run side by side on one GPU must find room there together; a
// block may need a multiprocessor for itself. Processes take turns on a GPU, each with all of it, but under MPS.
Status check_kernels_fit(const std::vector<Card>& cards) {
  for (const Card& one : cards) {
    const auto beside = std::ranges::count_if(cards, [&](const Card& other) {
      return other.bus == one.bus && (other.process == one.process || one.shared_by_mps != 0);
    });
    if (beside == 1 || beside * max_blocks <= one.multiprocessors) continue;
    return Status(Code::unsupported,
                  fmt::format("{} ranks share GPU {}, whose {} multiprocessors have room for the kernels of {}", beside,
                              one.bus.data(), one.multiprocessors, std::max(one.multiprocessors / max_blocks, 1)));
  }
  return {};
}

// The first rank's trouble, if one has any.
Status trouble(const std::vector<Card>& cards) {
  for (std::size_t i = 0; i < cards.size(); ++i)
    if (const std::string_view said = text_in(cards[i].trouble); !said.empty())
      return Status(Code::unsupported, fmt::format("rank {}: {}", i, said));
  return {};
}

// Everyone's card, if nobody has trouble.
Result<std::vector<Card>> show_trouble(const Card& mine, const Gather& gather) {
  auto cards = show(mine, gather);
  PACE_TRY(cards.status());
  PACE_TRY(trouble(*cards));
  return cards;
}

}  // namespace

Status CudaEngine::allocate(Card& card) {
  PACE_CUDA("the current GPU cannot be told", cudaGetDevice(&device_));
  PACE_CUDA("the GPU's PCI address cannot be told",
            cudaDeviceGetPCIBusId(card.bus.data(), static_cast<int>(card.bus.size()), device_));
  put(card.gpu, name_of(device_));
  PACE_CUDA("the GPU's multiprocessors cannot be told",
            cudaDeviceGetAttribute(&card.multiprocessors, cudaDevAttrMultiProcessorCount, device_));
  // Drivers before 12.1 do not know this question.
  if (cudaDeviceGetAttribute(&card.shared_by_mps, cudaDevAttrMpsEnabled, device_) != cudaSuccess)
    (void)cudaGetLastError();
  PACE_CUDA("making a stream", cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking));
  PACE_CUDA("making an event", cudaEventCreateWithFlags(&last_call_, cudaEventDisableTiming));
  int generation = 0;
  PACE_CUDA("the GPU's generation cannot be told",
            cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device_));
  on_hopper_ = generation >= 9;
  card.blocks = configuration().gpu_blocks;
  void* memory = nullptr;
  PACE_CUDA("allocating the communicator's window on the GPU", cudaMalloc(&memory, layout_.total(ranks_)));
  windows_[static_cast<std::size_t>(rank_)] = static_cast<std::byte*>(memory);
  WindowUsers::add(windows_[static_cast<std::size_t>(rank_)]);
  // The rings of chunks too, though nothing reads one before it is written: tools cannot see who writes from a peer.
  PACE_CUDA("clearing the window", cudaMemsetAsync(memory, 0, layout_.total(ranks_), own_stream_));
  auto* slots = static_cast<std::byte*>(memory) + layout_.strips;
  std::uint64_t words = (layout_.vouchers - layout_.strips) / 8;
  void* arguments[] = {&slots, &words};
  PACE_CUDA("clearing the window",
            cudaLaunchKernel(blank_kernel(), dim3(max_blocks), dim3(512), arguments, 0, own_stream_));
  PACE_CUDA("clearing the window", cudaStreamSynchronize(own_stream_));
  auto page = PinnedPage::make();
  PACE_TRY(page.status());
  page_ = std::move(*page);
  static_assert(sizeof(Alarm) <= PinnedPage::bytes);
  alarm_ = static_cast<Alarm*>(page_->here());
  card.process = process_token();
  card.window = reinterpret_cast<std::uint64_t>(windows_[static_cast<std::size_t>(rank_)]);
  card.device = device_;
  if (ranks_ > 1)
    PACE_CUDA("sharing GPU memory with other processes (CUDA IPC)",
              cudaIpcGetMemHandle(&card.handle, windows_[static_cast<std::size_t>(rank_)]));
  if (ranks_ > 1 && configuration().gpu_direct != "off") {
    auto registration = Registration::create(rank_, ranks_, device_);
    if (registration.ok()) {
      registration_ = std::move(*registration);
      put(card.board, registration_->board_name());
    }
  }
  return load_kernels();
}

// All ranks have a registration, or none has.
void CudaEngine::open_boards(const std::vector<Card>& cards) {
  if (std::any_of(cards.begin(), cards.end(), [](const Card& card) { return card.board[0] == '\0'; }))
    registration_.reset();
  if (registration_ == nullptr) return;
  for (int peer = 0; peer < ranks_; ++peer) {
    const Card& card = cards[static_cast<std::size_t>(peer)];
    if (peer == rank_) continue;
    const Status status = registration_->open(peer, card.board.data(), card.process == process_token());
    // The others go on asking; this rank never answers, so the calls go through the windows.
    if (!status.ok()) log(LogLevel::warn, rank_, "GPU buffers are copied: {}", status.message());
  }
}

// With the other things that take time, so that the first call does not.
Status CudaEngine::load_kernels() {
  int most = 0;
  PACE_CUDA("the GPU's shared memory cannot be told",
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_));
  if (most < large_shared_bytes_) large_shared_bytes_ = large_shared_bytes_without_chunks;
  for (int type = 0; type < data_type_count; ++type) {
    const Kernels kernels = kernels_of(static_cast<DataType>(type));
    cudaFuncAttributes attributes;
    for (const ByRanks& strips : {kernels.folding.brief, kernels.folding.wide, kernels.folding.streaming})
      PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, strips.of(ranks_)));
    PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, kernels.direct.of(ranks_)));
    if (ranks_ > 2) PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, kernels.folding.relaying));
    if (ranks_ > 2 && kernels.passed_strips != nullptr)
      PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, kernels.passed_strips));
    PACE_CUDA("loading a kernel",
              cudaFuncSetAttribute(kernels.large, cudaFuncAttributeMaxDynamicSharedMemorySize, large_shared_bytes_));
    PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, kernels.walk));
  }
  const MovingKernels moving = moving_kernels();
  const MessageKernels messages = message_kernels();
  cudaFuncAttributes attributes;
  PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, copy_kernel()));
  for (const ByRanks& strips : {moving.brief, moving.wide, moving.streaming, moving.deep, moving.deep_once})
    PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, strips.of(ranks_)));
  if (ranks_ > 2) PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, moving.relaying));
  PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, messages.brief));
  PACE_CUDA("loading a kernel", cudaFuncGetAttributes(&attributes, messages.streaming));
  for (const void* const kernel : {messages.large, messages.both})
    PACE_CUDA("loading a kernel",
              cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, large_shared_bytes_));
  return {};
}

Status CudaEngine::map(const std::vector<Card>& cards) {
  const std::uint64_t process = process_token();
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    const auto p = static_cast<std::size_t>(peer);
    const Card& card = cards[p];
    const std::string whose = "the window of rank " + std::to_string(peer) + " on GPU " + card.bus.data();
    if (card.process == process) {
      if (card.device != device_) {
        int reachable = 0;
        PACE_CUDA("peer access", cudaDeviceCanAccessPeer(&reachable, device_, card.device));
        if (reachable == 0) return Status(Code::unsupported, "this GPU cannot reach " + whose);
        const cudaError_t error = cudaDeviceEnablePeerAccess(card.device, 0);
        if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
          return failure("reaching " + whose, error);
        (void)cudaGetLastError();
      }
      auto* const window = reinterpret_cast<std::byte*>(card.window);
      if (!WindowUsers::join(window)) return Status(Code::unsupported, whose + " is gone");
      windows_[p] = window;
    } else {
      void* memory = nullptr;
      PACE_CUDA("mapping " + whose, cudaIpcOpenMemHandle(&memory, card.handle, cudaIpcMemLazyEnablePeerAccess));
      windows_[p] = static_cast<std::byte*>(memory);
      opened_[p] = true;
    }
  }
  return {};
}

// What tables are measured on. A link with atomics of its own is NVLink; GPUs that other processes keep to themselves
// cannot be asked about.
void CudaEngine::look_at_machine(const std::vector<Card>& cards) {
  const int blocks = std::ranges::min(cards, {}, &Card::blocks).blocks;
  machine_ = {cards[static_cast<std::size_t>(rank_)].gpu.data(), "", ranks_,
              shares_gpu_ ? std::min(blocks, max_blocks) : blocks};
  for (const Card& card : cards) {
    int peer = device_;
    const bool seen = cudaDeviceGetByPCIBusId(&peer, card.bus.data()) == cudaSuccess;
    if (seen && peer != device_) {
      int atomics = 0;
      if (cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device_, peer) == cudaSuccess &&
          machine_.link != "pcie")
        machine_.link = atomics != 0 ? "nvlink" : "pcie";
    }
    (void)cudaGetLastError();
  }
}

// All ranks have the same table, or all go by the rules.
void CudaEngine::agree_on_table(const std::vector<Card>& cards) {
  std::vector<GpuVote> votes;
  for (const Card& card : cards) votes.push_back({card.gpu.data(), card.table});
  const std::string reason = disagreement(votes);
  if (!reason.empty()) {
    choice_ = {GpuTable::rules(ranks_), "rules"};
    if (rank_ == 0) log(LogLevel::warn, rank_, "{}", reason);
  }
  log(LogLevel::info, rank_, "GPU collectives: {} table, {} x {}, {}", choice_.source, ranks_, machine_.gpu,
      machine_.link.empty() ? "unknown link" : machine_.link);
}

void CudaEngine::use_tables(std::span<const GpuSetting> measured) {
  choice_ = choose_gpu_table(measured, shipped_gpu_settings(), machine_);
}

Status CudaEngine::connect(std::span<const GpuSetting> measured, const Gather& gather) {
  const OutsideOfCapture outside;
  Card card;
  Status status = allocate(card);
  if (!status.ok()) put(card.trouble, status.message());
  auto cards = show_trouble(card, gather);
  if (!cards.ok()) return status.ok() ? cards.status() : status;
  shares_gpu_ = any_share_a_gpu(*cards);
  PACE_TRY(check_kernels_fit(*cards));
  status = map(*cards);
  open_boards(*cards);
  look_at_machine(*cards);
  use_tables(measured);
  card.table = choice_.table.digest();
  put(card.trouble, status.ok() ? "" : status.message());
  cards = show_trouble(card, gather);
  if (!cards.ok()) return status.ok() ? cards.status() : status;
  agree_on_table(*cards);
  if (registration_ != nullptr) registration_->settle();
  return {};
}

// Tells the ranks of other processes that this one will not touch their windows again, and waits for them to say the
// same of ours.
void CudaEngine::say_farewell() {
  const std::uint32_t one = 1;
  for (int peer = 0; peer < ranks_; ++peer)
    if (opened_[static_cast<std::size_t>(peer)]) {
      auto& word = reinterpret_cast<WindowWords*>(windows_[static_cast<std::size_t>(peer)])->farewells[rank_];
      (void)cudaMemcpyAsync(&word, &one, sizeof one, cudaMemcpyDefault, own_stream_);
    }
  if (std::none_of(opened_.begin(), opened_.end(), [](bool opened) { return opened; })) return;
  (void)cudaStreamSynchronize(own_stream_);
  const auto until = std::chrono::steady_clock::now() + farewell_time;
  auto& mine = reinterpret_cast<WindowWords*>(windows_[static_cast<std::size_t>(rank_)])->farewells;
  for (;;) {
    std::array<std::uint32_t, max_gpus> said{};
    (void)cudaMemcpyAsync(said.data(), &mine, sizeof said, cudaMemcpyDefault, own_stream_);
    if (cudaStreamSynchronize(own_stream_) != cudaSuccess) return;
    bool all = true;
    for (int peer = 0; peer < ranks_; ++peer)
      all = all && (!opened_[static_cast<std::size_t>(peer)] || said[static_cast<std::size_t>(peer)] != 0);
    if (all || std::chrono::steady_clock::now() > until) return;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

CudaEngine::~CudaEngine() {
  while (!finish().ok()) continue;  // kernels use what is freed here
  const OnDevice here(device_);
  const OutsideOfCapture outside;
  plans_.reset();
  side_.reset();
  registration_.reset();
  say_farewell();
  for (std::size_t peer = 0; peer < windows_.size(); ++peer) {
    if (windows_[peer] == nullptr) continue;
    if (opened_[peer])
      (void)cudaIpcCloseMemHandle(windows_[peer]);
    else
      WindowUsers::drop(windows_[peer]);
  }
  page_.reset();
  if (own_stream_ != nullptr) (void)cudaStreamDestroy(own_stream_);
  if (last_call_ != nullptr) (void)cudaEventDestroy(last_call_);
  (void)cudaGetLastError();
}

Result<std::unique_ptr<GpuEngine>> GpuEngine::create(int rank, int ranks, double timeout,
                                                     std::span<const GpuSetting> measured, const Gather& gather) {
  // As all ranks know.
  if (ranks > max_gpus)
    return Status(Code::unsupported, "more than " + std::to_string(max_gpus) + " GPUs in one communicator");
  auto made = std::make_unique<CudaEngine>(rank, ranks, timeout);
  PACE_TRY(made->connect(measured, gather));
  return std::unique_ptr<GpuEngine>(std::move(made));
}

}  // namespace paceline::cuda
