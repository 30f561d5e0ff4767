// Buffers in memory that is mapped piece by piece (virtual_memory.h), where the other ranks see them.
//
// A rank offers every piece of a buffer to the others in a letter that carries its handle (handle_socket.h). Each
// reserves a range of addresses as long as the owner's and maps the piece at the same place in it, so that what lies
// side by side there does so here; it answers with the address. A piece that is no more, or is something else now, is
// withdrawn within some calls, at the latest before the next one is offered, and the others let go of it. Nobody waits
// for anybody: until all have answered for all pieces of a buffer, it is not seen.
//
// Pieces are told apart by the driver's numbers of their memory, so what was unmapped and mapped anew at the same
// address is another one. A withdrawn piece may be unmapped at once: its owner has freed it, so the owner's kernels
// that used it have ended, and they end only when the other ranks have done their part in its memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cuda/memory/handle_socket.h"
#include "cuda/memory/virtual_memory.h"
#include "cuda/memory/window.h"

namespace paceline::cuda {

// Where each rank sees a buffer; 0: it does not.
using Sights = std::array<std::uint64_t, max_gpus>;

class SharedPieces {
 public:
  // Rung by who has sent a rank letters, so that looking for none costs nothing. In memory that all ranks share.
  using Bell = std::atomic<std::uint32_t>;

  SharedPieces(int rank, int ranks, Bell& bell) : rank_(rank), ranks_(ranks), bell_(bell) {}
  ~SharedPieces();
  SharedPieces(const SharedPieces&) = delete;
  SharedPieces& operator=(const SharedPieces&) = delete;

  // Without a connection, a rank sees nothing. The bell lives as long as this.
  void connect(int peer, HandleSocket socket, Bell& bell);

  // To be called before each long call: takes the letters that have come.
  void look();
  // Where each rank sees `bytes` bytes at `buffer`: 0 if it does not, yet or ever. True: all do.
  bool sights(std::uint64_t buffer, std::uint64_t bytes, Sights& into);

 private:
  struct Letter {
    enum class Kind : std::uint32_t { offer = 1, answer, withdrawal };

    Kind kind;
    PieceHandle::Kind handle;  // of an offer
    std::uint64_t number;      // of the piece: its owner gives none twice
    std::uint64_t base;        // where its owner has it
    std::uint64_t bytes;
    std::uint64_t range;  // of an offer
    std::uint64_t range_bytes;
    std::uint64_t seen;  // of an answer
    std::array<char, 64> fabric;
  };
  struct Outgoing {
    Letter letter;
    std::shared_ptr<const PieceHandle> handle;
  };
  // Of this rank.
  struct Offered {
    std::array<std::uint64_t, 2> id{};
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;
    Sights seen{};  // where the others have mapped it
  };
  // Of another rank.
  struct Mirror {
    struct Part {
      std::uint64_t offset = 0;
      std::uint64_t bytes = 0;
    };
    int owner = 0;
    std::uint64_t base = 0;  // where its owner has it
    std::uint64_t bytes = 0;
    std::unique_ptr<MirroredRange> range;
    std::map<std::uint64_t, Part> parts;  // by the owner's number
  };
  struct Peer {
    HandleSocket socket;
    Bell* bell = nullptr;
    std::deque<Outgoing> outbox;
  };

  using Known = std::map<std::uint64_t, Offered>::iterator;
  const Offered* offer(const MemoryPiece& piece);
  Known check(Known place);
  void check_some();
  void post(int peer, const Letter& letter, const std::shared_ptr<const PieceHandle>& handle);
  static void flush(Peer& peer);
  void take(int from, const Letter& letter, FileDescriptor descriptor);
  std::uint64_t mirror(int owner, const Letter& offer, FileDescriptor descriptor);
  void let_go(int owner, std::uint64_t number);

  const int rank_;
  const int ranks_;
  Bell& bell_;
  std::uint32_t rung_ = 0;  // as heard last
  std::array<Peer, max_gpus> peers_;
  std::map<std::uint64_t, Offered> offered_;  // by address
  std::uint64_t last_number_ = 0;
  std::uint64_t checked_ = 0;  // the address of the last that was looked at
  int offers_left_ = 0;        // in this call
  bool swept_ = false;         // in this call
  std::vector<Mirror> mirrors_;
};

}  // namespace paceline::cuda
