// A piece of POSIX shared memory that several processes of one node map: created 0600 under a name of its creator's
// number, its pid namespace's and a random one, unlinked as soon as everyone has mapped it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"

namespace paceline {

// Whether /proc is that of this process's pid namespace: there it has its own number.
bool proc_is_ours();

class Segment {
 public:
  // New memory of zeros, really there (a full /dev/shm is an error now, not a signal later).
  // `least`: what it would be with the least PACELINE_STAGING, which is no remedy where that does not fit.
  static Result<std::shared_ptr<Segment>> create(std::size_t bytes, std::size_t least = 0);
  // Another process's, by name. Within one process all ranks share one mapping.
  static Result<std::shared_ptr<Segment>> open(const std::string& name, std::size_t bytes);
  // Take away the names that processes of this pid namespace left when they died before everyone had mapped their
  // memory. create() does, too: of a job that was killed whole nobody is left to do it.
  static void unlink_left_behind();
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Have a part's pages in this process's tables now, for writing, and not one by one as each is first used. Where the
  // kernel cannot (before Linux 5.14), nothing happens.
  void populate(std::size_t offset, std::size_t bytes);
  // Take the name away; the memory stays until the last one unmaps it. Everyone does, for the creator may die before
  // its turn.
  void unlink();

 private:
  Segment(std::string name, std::byte* data, std::size_t bytes, bool creator)
      : name_(std::move(name)), data_(data), bytes_(bytes), creator_(creator) {}
  static Result<std::shared_ptr<Segment>> map(const std::string& name, int descriptor, std::size_t bytes, bool creator);

  std::string name_;
  std::byte* data_;
  std::size_t bytes_;
  bool creator_;                    // takes the name away at the end, if nobody has before
  std::atomic<bool> linked_{true};  // ranks that are threads of one process share the segment
};

}  // namespace paceline
