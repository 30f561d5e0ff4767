// The user's buffers where the other ranks see them.
//
// A buffer that a long collective uses is made known to the other processes by its allocation: its CUDA IPC handle is
// written on this rank's board, shared memory that all of them map. Each maps the allocation when it next makes a long
// call, and writes on the board where it sees it. From then on the owner can tell every rank the address at which it
// finds the buffer. Nobody waits for anybody: until all have answered, calls go through the windows. Only calls that a
// graph is made of wait, for what they are told now is what the graph has for ever.
//
// An allocation is known by the driver's number of it, so that memory which was freed and given out again at the same
// address is another one. What was freed is taken off the board when the next one is put there; the others then let go
// of it. What is there stays as long as it is not freed, for graphs may have the addresses: on a full board there is no
// place for others.
//
// Ranks of one process see the memory of each other's GPUs as it is; that of yet another GPU they may not reach. Memory
// that is mapped piece by piece has no IPC handle: its pieces go another way (shared_pieces.h), between ranks of one
// process too, since each has it for its own GPU only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/memory/handle_socket.h"
#include "cuda/memory/shared_pieces.h"
#include "cuda/memory/window.h"
#include "transport/segment.h"

namespace paceline::cuda {

class Registration {
 public:
  // Of this rank, which uses GPU `device`; the segment's name is for the others to open.
  static Result<std::unique_ptr<Registration>> create(int rank, int ranks, int device);
  ~Registration();

  [[nodiscard]] const std::string& board_name() const;
  // Another rank's board. here: the rank is in this process, and sees what this one sees.
  Status open(int peer, const std::string& board_name, bool here);
  // All have opened it: the name goes.
  void settle();

  // To be called before each long call, on every rank: maps what the others have put on their boards since.
  void look();
  // Where each rank sees `bytes` bytes at `buffer`: 0 if it does not, yet or ever. True: all do.
  bool sights(const std::byte* buffer, std::uint64_t bytes, Sights& into);
  // Waits until the other ranks have called this as often as this one has. False: one has not come in time, or `ended`;
  // then nobody is waited for any more. Not for ranks of one process: their calls may be made by one thread.
  bool in_step(const std::function<bool()>& ended);
  // What a rank tells of a call that a graph is made of: what it is, and where each rank sees its input; 0: not all do.
  struct Offer {
    std::uint32_t what = 0;
    std::uint64_t count = 0;
    Sights inputs{};
  };
  // What keeps the other ranks' allocations mapped, also when their owners have freed them.
  using Holds = std::vector<std::shared_ptr<void>>;
  // Of ranks that make the same call and all see all inputs.
  struct Agreement {
    std::uint32_t number = 0;  // the same on all of them, and another one each time
    Sights inputs{};           // where this rank sees each one's, as long as somebody has `holds` and this lives
    Holds holds;
  };
  // One answer, the same on every rank; none: some rank makes another call, or does not see all. In step as above.
  std::optional<Agreement> agree(const Offer& mine, const std::function<bool()>& ended);

  // Unmaps what its owner has freed and no graph loads from: when all kernels of this GPU have ended.
  void let_go();

 private:
  struct Board;
  // Another rank's allocation.
  struct Mapped {
    int owner = 0;
    int entry = 0;
    std::uint64_t id = 0;
    std::uint64_t bytes = 0;
    void* address = nullptr;
    std::shared_ptr<void> hold = nullptr;  // others have it while a graph loads from here
  };
  Registration(int rank, int ranks, int device) : rank_(rank), ranks_(ranks), device_(device) {}
  [[nodiscard]] bool elsewhere(int rank) const { return rank != rank_ && !here_[static_cast<std::size_t>(rank)]; }
  Board* board_of(int rank) const;
  int entry_of(std::uint64_t base, std::uint64_t id);
  int free_place();
  void map(int owner, int entry, Mapped& mapped);
  [[nodiscard]] std::shared_ptr<void> hold_of(int owner, std::uint64_t address) const;
  void unmap(Mapped& mapped);

  const int rank_;
  const int ranks_;
  const int device_;
  std::shared_ptr<Segment> mine_;
  std::array<std::shared_ptr<Segment>, max_gpus> boards_;
  std::array<bool, max_gpus> here_{};           // in this process
  bool full_ = false;                           // no place was free on the board
  int last_looked_at_ = 0;                      // of its places, since then
  bool waits_ = true;                           // for the others, to be in step with them
  std::array<std::uint32_t, max_gpus> seen_{};  // changes of each board
  std::vector<Mapped> mapped_;
  std::vector<Mapped> freed_;             // by their owners, but graphs still load from them
  std::unique_ptr<HandleDoor> door_;      // until all have opened the board; none: pieces stay unknown
  std::unique_ptr<SharedPieces> pieces_;  // rings the boards' bells
};

}  // namespace paceline::cuda
