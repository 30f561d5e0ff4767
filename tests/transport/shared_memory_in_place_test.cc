#include "transport/shared_memory_node.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "transport/child.h"
#include "transport/secret_memory.h"
#include "transport/shared_heap.h"
#include "transport/single_copy.h"

namespace paceline {
namespace {

std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("shm: data of paceMemAlloc that stays is read where it is") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(2 * bytes);
  REQUIRE(memory.ok());
  auto* heap = static_cast<std::byte*>(*memory);
  const Data data = pattern(bytes, 5);
  std::memcpy(heap + 100, data.data(), bytes);
  const std::vector<int> to{1, 2};

  Node node(3, {.heap_from = bytes, .single_copy_from = 0});
  CHECK(node[0].send(0, to, sum_of(1), {heap + 100, bytes}, true) == Attempt::done);
  const std::byte* seen = node.look(1, 0, bytes);
  REQUIRE(seen != nullptr);
  CHECK_FALSE(node.has(seen));
  CHECK(std::equal(data.begin(), data.end(), seen));
  heap[100] = std::byte{77};  // one memory
  CHECK(*seen == std::byte{77});
  heap[100] = data[0];

  // Until everyone has released it.
  CHECK(node[0].sent(0) == 0);
  CHECK(node.take(1, 0, data));
  CHECK(node[0].sent(0) == 0);
  CHECK(node.take(2, 0, data));
  CHECK(node[0].sent(0) == 1);

  // What does not stay, is shorter or lies elsewhere is copied.
  CHECK(node[0].send(0, to, sum_of(1), {heap + 100, bytes}, false) == Attempt::done);
  CHECK(node[0].send(0, to, sum_of(1), {heap + 100, bytes - 1}, true) == Attempt::done);
  CHECK(node[0].send(0, to, sum_of(1), data, true) == Attempt::done);
  CHECK(node[0].sent(0) == 4);
  for (std::size_t each : {bytes, bytes - 1, bytes}) {
    CHECK(node.has(node.look(1, 0, each)));
    CHECK(node.take(1, 0, Data(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(each))));
  }
  CHECK(free_shared(heap).ok());
}

TEST_CASE("shm: sent counts the first messages, whatever became of later ones") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(bytes);
  REQUIRE(memory.ok());
  const std::span<const std::byte> heap(static_cast<std::byte*>(*memory), bytes);
  const Data zeros(bytes);
  const Data copied = pattern(bytes, 1);
  const std::vector<int> one{1};
  const std::vector<int> two{2};

  Node node(3, {.heap_from = bytes, .single_copy_from = 0});
  CHECK(node.send(0, {1}, copied) == Attempt::done);
  CHECK(node[0].sent(0) == 1);
  CHECK(node[0].send(0, one, sum_of(1), heap, true) == Attempt::done);  // number 1
  CHECK(node.send(0, {2}, copied) == Attempt::done);
  CHECK(node[0].send(0, two, sum_of(1), heap, true) == Attempt::done);  // number 3
  CHECK(node[0].sent(0) == 1);
  CHECK(node[0].sent(1) == 0);
  CHECK(node.take(2, 0, copied));
  CHECK(node.take(2, 0, zeros));
  CHECK(node[0].sent(0) == 1);
  CHECK(node[0].holder(0, {}, sum_of(1)) == 1);
  CHECK(node.take(1, 0, copied));
  CHECK(node[0].sent(0) == 1);
  CHECK(node.take(1, 0, zeros));
  CHECK(node[0].sent(0) == 4);
  CHECK(node[0].holder(0, {}, sum_of(1)) == -1);
  CHECK(free_shared(*memory).ok());
}

TEST_CASE("shm: references have a ring like the slots'") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(bytes);
  REQUIRE(memory.ok());
  const std::span<const std::byte> heap(static_cast<std::byte*>(*memory), bytes);
  Node node(4, {.heap_from = bytes, .single_copy_from = 0});
  const std::vector<int> one{1};
  const std::vector<int> two{2};
  const std::vector<int> three{3};
  const std::uint32_t half = node.layout.slots() / 2;
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node[0].send(0, one, sum_of(1), heap, true) == Attempt::done);
  for (std::uint32_t i = 0; i < half; ++i) CHECK(node[0].send(0, two, sum_of(1), heap, true) == Attempt::done);
  CHECK(node[0].send(0, three, sum_of(1), heap, true) == Attempt::later);
  CHECK(node.send(0, {3}, pattern(bytes, 1)) == Attempt::done);  // a slot is free
  CHECK(node.take(1, 0, Data(bytes)));
  CHECK(node[0].send(0, three, sum_of(1), heap, true) == Attempt::done);
  CHECK(free_shared(*memory).ok());
}

TEST_CASE("shm: of a message to several, the one who has not taken it holds it; of messages, the first counts") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(bytes);
  REQUIRE(memory.ok());
  const std::span<const std::byte> heap(static_cast<std::byte*>(*memory), bytes);
  Node node(4, {.heap_from = bytes, .single_copy_from = 0});
  const std::vector<int> two_and_three{2, 3};
  const std::vector<int> one{1};
  CHECK(node[0].send(0, two_and_three, sum_of(1), heap, true) == Attempt::done);
  CHECK(node[0].send(0, one, sum_of(1), heap, true) == Attempt::done);
  CHECK(node[0].holder(0, {}, sum_of(1)) == 2);
  CHECK(node.take(2, 0, Data(bytes)));
  CHECK(node[0].holder(0, {}, sum_of(1)) == 3);
  CHECK(node.take(3, 0, Data(bytes)));
  CHECK(node[0].holder(0, {}, sum_of(1)) == 1);
  while (node[0].send(0, two_and_three, sum_of(1), heap, true) == Attempt::done) CHECK(node.take(2, 0, Data(bytes)));
  CHECK(node[0].holder(0, two_and_three, sum_of(1)) == 3);
  CHECK(free_shared(*memory).ok());
}

TEST_CASE("shm: what its owner gives back after a failed call can be read until it is released") {
  constexpr std::size_t bytes = 20'000;
  auto first = allocate_shared(bytes);
  auto second = allocate_shared(bytes);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  std::memset(*first, 5, bytes);
  const std::vector<int> one{1};
  Node node(2, {.heap_from = bytes, .single_copy_from = 0});
  CHECK(node[0].send(0, one, sum_of(1), {static_cast<std::byte*>(*first), bytes}, true) == Attempt::done);
  CHECK(node[0].send(1, one, sum_of(1), {static_cast<std::byte*>(*second), bytes}, true) == Attempt::done);
  const std::byte* seen = node.look(1, 0, bytes);
  REQUIRE(seen != nullptr);
  node[0].withdraw();
  CHECK(free_shared(*first).ok());
  CHECK(node.look(1, 0, bytes, sum_of(1), 1) != nullptr);
  CHECK(*seen == std::byte{5});
  CHECK(node[1].release(0, 0) == Attempt::failed);
  CHECK(free_shared(*second).ok());
}

TEST_CASE("shm: memory of a process that has ended is a lost rank's, also before its parent has asked how it ended") {
  Child ended([] { return true; });
  siginfo_t how{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(ended.pid()), &how, WEXITED | WNOWAIT) == 0);
  Child reader([&] {
    constexpr std::size_t bytes = 20'000;
    constexpr uid_t nobody = 65534;  // root may look into every process
    if (geteuid() == 0 && setresuid(nobody, nobody, nobody) != 0) return false;
    const NodeLayout layout(2, max_channels, default_staging);
    const auto segment = Segment::create(layout.total());
    const auto memory = allocate_shared(bytes);
    if (!segment.ok() || !memory.ok()) return false;
    const std::vector<NodePeer> peers{{0, ended.pid()}, {1, getpid()}};
    const ReadInPlace in_place{.heap_from = bytes, .single_copy_from = 0};
    SharedMemoryTransport sender(*segment, layout, peers, 0, 2, in_place);
    SharedMemoryTransport receiver(*segment, layout, peers, 1, 2, in_place);
    const std::span<const std::byte> data(static_cast<const std::byte*>(*memory), bytes);
    const std::byte* where = nullptr;
    if (sender.send(0, std::vector{1}, sum_of(1), data, true) != Attempt::done ||
        receiver.receive(0, 0, sum_of(1), bytes, nullptr, &where) != Attempt::failed)
      return false;
    const Status::Detail& detail = receiver.failure().detail();
    return detail.code == Code::remote && detail.rank == 0 && detail.system_errno == EACCES;
  });
  CHECK(reader.ended_well());
}

TEST_CASE("shm: who waits finds that another rank's process has ended, unless it had left") {
  Child child([] { return true; });
  const pid_t self = getpid();
  const pid_t other = child.pid();
  const NodeLayout layout(2, max_channels, default_staging);
  const auto segment = Segment::create(layout.total());
  REQUIRE(segment.ok());
  const auto transport_of = [&](int rank, bool identified) {
    const std::vector<NodePeer> peers{{0, other, identified}, {1, self, identified}};
    return std::make_unique<SharedMemoryTransport>(*segment, layout, peers, rank, 2, ReadInPlace{});
  };
  siginfo_t how{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(other), &how, WEXITED | WNOWAIT) == 0);
  const auto check = [&] {
    const auto ours = transport_of(1, true);
    CHECK(transport_of(1, false)->compare(0, sum_of(1)) == Attempt::done);  // the number may be another process's
    CHECK(ours->compare(-1, sum_of(1)) == Attempt::done);
    CHECK(ours->compare(0, sum_of(1)) == Attempt::done);  // its last messages may have come meanwhile
    CHECK(ours->compare(0, sum_of(1)) == Attempt::failed);
    CHECK(ours->failure().code() == Code::remote);
    CHECK(ours->failure().detail().rank == 0);
    CHECK(ours->failure().message() == fmt::format("rank 0 (pid {}) died: its process has ended", other));
  };
  check();  // its parent has not asked yet how it ended
  CHECK(child.ended_well());
  check();
  CHECK(transport_of(0, true)->compare(1, sum_of(1)) == Attempt::done);
  transport_of(0, true)->show_departure(3);
  const auto ours = transport_of(1, true);
  for (int look = 0; look < 3; ++look) CHECK(ours->compare(0, sum_of(1)) == Attempt::done);
}

TEST_CASE("shm: a process whose first thread has ended goes on") {
  Pipe ending;
  Child child([&] {
    std::thread([&] {
      bool go = false;
      std::_Exit(ending.get(&go) ? 0 : 1);
    }).detach();
    syscall(SYS_exit, 0);  // of this thread alone
    return false;
  });
  const NodeLayout layout(2, max_channels, default_staging);
  const auto segment = Segment::create(layout.total());
  REQUIRE(segment.ok());
  SharedMemoryTransport ours(*segment, layout, {{0, child.pid(), true}, {1, getpid(), true}}, 1, 2, ReadInPlace{});
  // Until it is so: the first thread is a zombie then.
  const auto first_thread = [&] {
    std::ifstream file(fmt::format("/proc/{}/stat", child.pid()));
    std::string stat;
    std::getline(file, stat);
    return stat.substr(stat.rfind(')') + 2, 1);
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (first_thread() != "Z" && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  CHECK(first_thread() == "Z");
  for (int look = 0; look < 3; ++look) CHECK(ours.compare(0, sum_of(1)) == Attempt::done);
  ending.put(true);
  CHECK(child.ended_well());
  CHECK(ours.compare(0, sum_of(1)) == Attempt::done);
  CHECK(ours.compare(0, sum_of(1)) == Attempt::failed);
}

TEST_CASE("shm: a message read where it lies is worth nothing once its sender's call has failed") {
  constexpr std::size_t bytes = 20'000;
  auto memory = allocate_shared(bytes);
  REQUIRE(memory.ok());
  const std::span<const std::byte> heap(static_cast<std::byte*>(*memory), bytes);
  const std::vector<int> one{1};
  for (const bool in_heap : {true, false}) {
    if (!in_heap && !can_read(getpid(), ReadProbe().place())) continue;
    Node node(2, {.heap_from = in_heap ? bytes : 0, .single_copy_from = bytes});
    node[0].use_single_copy(!in_heap);
    const Data copied = pattern(bytes, 1);
    CHECK(node.send(0, {1}, copied) == Attempt::done);
    CHECK(node[0].send(0, one, sum_of(4, 7), heap, true) == Attempt::done);
    CHECK(node[0].send(1, one, sum_of(4, 7), heap, true) == Attempt::done);
    Data place(bytes);
    const std::byte* where = nullptr;
    // Read before, but maybe not to its end.
    CHECK(node[1].receive(1, 0, sum_of(4, 7), bytes, place.data(), &where) == Attempt::done);
    node[0].withdraw();
    CHECK(node.take(1, 0, copied));  // a copy stays
    CHECK(node[1].receive(0, 0, sum_of(4, 7), bytes, place.data(), &where) == Attempt::done);
    for (const int channel : {0, 1}) {
      CHECK(node[1].release(channel, 0) == Attempt::failed);
      CHECK(node[1].failure().code() == Code::remote);
      CHECK(node[1].failure().detail().rank == 0);
      CHECK(node[1].failure().detail().sequence == 7);
      CHECK(node[0].sent(channel) == (channel == 0 ? 1 : 0));
    }
  }
  CHECK(free_shared(*memory).ok());
}

// Two ranks, of which the first has sent the second something that lies in memory of paceMemAlloc.
struct SentInPlace {
  static constexpr std::size_t bytes = 20'000;
  Node node{2, {.heap_from = bytes, .single_copy_from = 0}};
  void* memory = nullptr;

  SentInPlace() {
    auto allocated = allocate_shared(bytes);
    REQUIRE(allocated.ok());
    memory = *allocated;
    const std::vector<int> one{1};
    CHECK(node[0].send(0, one, sum_of(7), {static_cast<std::byte*>(memory), bytes}, true) == Attempt::done);
  }
};

TEST_CASE("shm: memory that its owner gave back after a failed call is not there: the failed call is the reason") {
  SentInPlace sent;
  sent.node[0].withdraw();
  CHECK(free_shared(sent.memory).ok());
  const std::byte* where = nullptr;
  CHECK(sent.node[1].receive(0, 0, sum_of(7), SentInPlace::bytes, nullptr, &where) == Attempt::failed);
  CHECK(sent.node[1].failure().code() == Code::remote);
  CHECK(sent.node[1].failure().message().starts_with("the call of rank 0 failed before its message of "));
}

TEST_CASE("shm: a rank that may open no more files says so of itself") {
  SentInPlace sent;
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  const rlimit none{0, files.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::byte* where = nullptr;
  const Attempt attempt = sent.node[1].receive(0, 0, sum_of(7), SentInPlace::bytes, nullptr, &where);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK(attempt == Attempt::failed);
  CHECK(sent.node[1].failure().detail().rank == 1);
  CHECK(sent.node[1].failure().detail().peer == 0);
  CHECK(sent.node[1].failure().message().find("`ulimit -n`") != std::string::npos);
  CHECK(free_shared(sent.memory).ok());
}

TEST_CASE("shm: with single copy, data that stays is read from its process into the place given") {
  constexpr std::size_t bytes = 20'000;
  if (!can_read(getpid(), ReadProbe().place())) return;
  Node node(2, {.heap_from = 0, .single_copy_from = bytes});
  const Data data = pattern(bytes, 6);
  Data place(bytes);
  const std::byte* where = nullptr;

  CHECK(node.send(0, {1}, data, sum_of(1), true) == Attempt::done);  // not in use yet
  CHECK(node[0].sent(0) == 1);
  CHECK(node.take(1, 0, data));

  node[0].use_single_copy(true);
  CHECK(node.send(0, {1}, data, sum_of(1), true) == Attempt::done);
  CHECK(node[0].sent(0) == 1);
  CHECK(node[1].receive(0, 0, sum_of(1), bytes, place.data(), &where) == Attempt::done);
  CHECK(where == place.data());
  CHECK(place == data);
  node[1].release(0, 0);
  CHECK(node[0].sent(0) == 2);

  CHECK(node.send(0, {1}, data, sum_of(1), false) == Attempt::done);  // does not stay
  CHECK(node[0].sent(0) == 3);
  CHECK(node.take(1, 0, data));
  node[0].use_single_copy(false);
  CHECK(node.send(0, {1}, data, sum_of(1), true) == Attempt::done);
  CHECK(node[0].sent(0) == 4);
}

// Two messages of 200,000 bytes are longer than a slot, and of 20,000 are not.
TEST_CASE("shm: with single copy, what no other process can read is read from one copy or from staging") {
  const Data data = pattern(400'000, 6);
  const testing::SecretMemory secret(data.size());
  if (!can_read(getpid(), ReadProbe().place()) || secret.span().empty()) return;
  std::ranges::copy(data, secret.span().begin());
  const std::vector<int> to{1, 2};
  for (const std::size_t bytes : {200'000, 20'000}) {
    Node node(3, {.heap_from = 20'000, .single_copy_from = 20'000});
    node[0].use_single_copy(true, secret.span());
    const std::ptrdiff_t before = descriptors();
    for (std::uint64_t i = 0; i < 2; ++i) {
      CHECK(node[0].send(0, to, sum_of(1), secret.span().subspan(i * bytes, bytes), true) == Attempt::done);
      CHECK(node[0].sent(0) == (bytes == 20'000 ? i + 1 : i));
      const Data message(data.begin() + static_cast<std::ptrdiff_t>(i * bytes),
                         data.begin() + static_cast<std::ptrdiff_t>((i + 1) * bytes));
      for (const int rank : to) CHECK(node.take(rank, 0, message));
      CHECK(node[0].sent(0) == i + 1);
    }
    CHECK(descriptors() == before + (bytes == 20'000 ? 0 : 1));
    // What can be read is read where it is.
    const Data other = pattern(bytes, 7);
    CHECK(node.send(0, {1}, other, sum_of(1), true) == Attempt::done);
    Data place(bytes);
    const std::byte* where = nullptr;
    CHECK(node[1].receive(0, 0, sum_of(1), bytes, place.data(), &where) == Attempt::done);
    CHECK(where == place.data());
    CHECK(place == other);
    node[0].use_single_copy(false);
    CHECK(descriptors() == before);
  }
}

TEST_CASE("shm: between two processes") {
  constexpr std::size_t bytes = 100'000;
  const NodeLayout layout(2, max_channels, 0);
  auto created = Segment::create(layout.total());
  REQUIRE(created.ok());
  const pid_t parent = getpid();
  const Data copied = pattern(bytes, 1);
  const Data allocated = pattern(bytes, 2);
  const Data own = pattern(bytes, 3);
  Pipe may_read;
  const std::vector<int> to_parent{1};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto until = [&](const auto& done) {
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  };

  // The child sends through a slot, from memory of paceMemAlloc, and from its own.
  Child child([&] {
    bool readable = false;
    if (!may_read.get(&readable)) return false;
    SharedMemoryTransport transport(*created, layout, {{0, getpid()}, {1, parent}}, 0, 2,
                                    {bytes, readable ? bytes : 0});
    transport.use_single_copy(true);
    auto memory = allocate_shared(bytes);
    if (!memory.ok()) return false;
    auto* heap = static_cast<std::byte*>(*memory);
    std::memcpy(heap, allocated.data(), bytes);
    const Data mine = own;
    return transport.send(0, to_parent, sum_of(1), copied, false) == Attempt::done &&
           transport.send(0, to_parent, sum_of(2), {heap, bytes}, true) == Attempt::done &&
           transport.send(0, to_parent, sum_of(3), mine, true) == Attempt::done &&
           until([&] { return transport.sent(0) == 3; });
  });
  std::byte byte{};
  const bool readable = read_remote(child.pid(), reinterpret_cast<std::uint64_t>(&byte), &byte, 1);
  may_read.put(readable);
  SharedMemoryTransport transport(*created, layout, {{0, child.pid()}, {1, parent}}, 1, 2, {bytes, 0});
  Data place(bytes);
  std::uint64_t number = 0;
  for (const Data* expected : {&copied, &allocated, &own}) {
    const std::byte* where = nullptr;
    Attempt attempt = Attempt::later;
    ++number;
    CHECK(until([&] {
      attempt = transport.receive(0, 0, sum_of(number), bytes, place.data(), &where);
      return attempt != Attempt::later;
    }));
    REQUIRE_MESSAGE(attempt == Attempt::done, transport.failure().message());
    CHECK(std::equal(expected->begin(), expected->end(), where));
    CHECK((where == place.data()) == (readable && number == 3));
    transport.release(0, 0);
  }
  CHECK(child.ended_well());
}

TEST_CASE("shm: memory of a process that is gone is an error that names its rank") {
  constexpr std::size_t bytes = 20'000;
  const NodeLayout layout(2, max_channels, 0);
  auto created = Segment::create(layout.total());
  REQUIRE(created.ok());
  Child child([&] {
    SharedMemoryTransport transport(*created, layout, {{0, getpid()}, {1, getppid()}}, 0, 2, {bytes, bytes});
    transport.use_single_copy(true);
    auto memory = allocate_shared(bytes);
    const std::vector<int> to_parent{1};
    const Data mine(bytes);
    return memory.ok() && transport.send(0, to_parent, sum_of(1), mine, true) == Attempt::done &&
           transport.send(1, to_parent, sum_of(1), {static_cast<std::byte*>(*memory), bytes}, true) == Attempt::done;
  });
  const std::vector<NodePeer> peers{{0, child.pid()}, {1, getpid()}};
  CHECK(child.ended_well());
  for (int channel : {0, 1}) {
    SharedMemoryTransport transport(*created, layout, peers, 1, 2, {bytes, bytes});
    Data place(bytes);
    const std::byte* where = nullptr;
    CHECK(transport.receive(channel, 0, sum_of(1), bytes, place.data(), &where) == Attempt::failed);
    CHECK(transport.failure().code() == Code::remote);
    CHECK(transport.failure().detail().rank == 0);
    CHECK(transport.failure().message().rfind("reading the memory of rank 0: ", 0) == 0);
  }
}

}  // namespace paceline
