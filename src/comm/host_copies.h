// Calls on GPU memory as calls on host memory: what they read is copied there, what they wrote is copied back.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "comm/arena.h"
#include "engine/request.h"

namespace paceline {

// Buffers that overlap do so on the host, too: a call reads what one before it on its communicator has written, and in
// place stays in place.
class HostCopies {
 public:
  // stream: the call's cudaStream_t. Before load().
  void add(const Request& request, void* stream, int rank, int ranks);
  // Nothing is changed on GPUs by this.
  Status load();
  // Of call `number`, in the order in which they were added.
  [[nodiscard]] Request on_host(std::size_t number) const;
  // After the call has run.
  Status store(std::size_t number);
  [[nodiscard]] std::size_t size() const { return calls_.size(); }

  // The first half of load(): find room.
  Status reserve();

 private:
  struct Call {
    Request request;
    void* stream = nullptr;
    std::size_t input_bytes = 0;
    std::size_t output_bytes = 0;
  };
  // Of GPU memory, and its copy.
  struct Block {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::byte* copy = nullptr;
    Arena memory;
  };
  // nullptr: of no bytes.
  [[nodiscard]] std::byte* copy_of(const std::byte* buffer, std::size_t bytes) const;

  std::vector<Call> calls_;
  std::deque<Block> blocks_;  // apart from each other, by address
};

}  // namespace paceline
