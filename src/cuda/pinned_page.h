// A page of this process's memory that kernels on every GPU reach.
//
// Where possible it is not the CUDA runtime's, which takes its own away when the program resets its GPU, or ends
// without having destroyed its communicators: threads of ours look at the page until then.
#pragma once

#include <memory>

#include "base/status.h"
#include "base/until_exit.h"

namespace paceline::cuda {

class PinnedPage {
 public:
  static constexpr std::size_t bytes = 4096;

  // Zeros.
  static Result<std::unique_ptr<PinnedPage>> make();
  ~PinnedPage();
  PinnedPage(const PinnedPage&) = delete;
  PinnedPage& operator=(const PinnedPage&) = delete;

  [[nodiscard]] void* here() const { return here_; }
  [[nodiscard]] void* on_gpu() const { return on_gpu_; }
  // Whether it stays when CUDA ends.
  [[nodiscard]] bool is_ours() const { return is_ours_; }
  // Runs act(), which looks at the page, unless that has gone with CUDA at the process's end. Any thread.
  template <class Act>
  void while_there(const Act& act) const {
    if (is_ours_)
      act();
    else
      UntilExit::run(act);
  }

 private:
  PinnedPage() = default;

  void* here_ = nullptr;
  void* on_gpu_ = nullptr;
  bool is_ours_ = false;
};

}  // namespace paceline::cuda
