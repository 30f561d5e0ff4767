// Letters between two ranks of a node, each with at most one file descriptor: what shared memory cannot carry.
//
// A rank opens a door, a Unix socket beside the shared memory in /dev/shm and under its rules: 0600, and without a name
// as soon as everyone has come through. Each of two ranks then has one end of a connection. Nothing here waits: a
// letter that finds no room is sent later, and where the other rank has gone, its end says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/private_descriptor.h"
#include "base/status.h"

namespace paceline::cuda {

class HandleSocket {
 public:
  enum class Outcome { done, later, gone };

  HandleSocket() = default;
  explicit HandleSocket(PrivateDescriptor connection) : connection_(std::move(connection)) {}

  [[nodiscard]] bool open() const { return connection_.valid(); }
  // `handle`: a descriptor that the other gets a copy of; -1: none. After `gone` the socket is closed.
  Outcome send(std::span<const std::byte> letter, int handle = -1);
  // A letter of exactly this length; anything else ends the connection. `handle` is not valid if none came with it, or
  // if this process may open no more files.
  Outcome receive(std::span<std::byte> letter, FileDescriptor& handle);

 private:
  Outcome end();

  PrivateDescriptor connection_;
};

class HandleDoor {
 public:
  // name: of a file in /dev/shm, "/like-shared-memory's". Whoever comes must show `token`.
  static Result<std::unique_ptr<HandleDoor>> open(const std::string& name, std::uint64_t token);
  ~HandleDoor();

  // Through another rank's door.
  static Result<HandleSocket> enter(const std::string& name, std::uint64_t token, int rank);
  // The next rank that has come through this one. Whoever is another user, or does not know the token, is sent away.
  struct Guest {
    int rank = -1;  // -1: nobody waits
    HandleSocket socket;
  };
  Guest admit();

 private:
  HandleDoor(PrivateDescriptor listener, std::string path, std::uint64_t token)
      : listener_(std::move(listener)), path_(std::move(path)), token_(token) {}

  PrivateDescriptor listener_;
  std::string path_;
  std::uint64_t token_;
};

}  // namespace paceline::cuda
