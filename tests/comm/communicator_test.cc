#include "comm/communicator.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <latch>

#include "algorithms/table.h"
#include "base/copies.h"
#include "comm/cases.h"
#include "comm/scarce_memory.h"
#include "comm/threads.h"
#include "transport/secret_memory.h"

namespace paceline::testing {
namespace {

// Every case with every algorithm that serves it.
std::string every_algorithm(int rank, paceComm_t comm, int ranks, const std::vector<std::size_t>& counts,
                            std::byte* memory) {
  for (const Algorithm& algorithm : algorithms()) {
    PACE_EXPECT(paceCommSetAlgorithm(comm, std::string(algorithm.name).c_str()));
    const std::string complaint = each_case(ranks, counts, [&](const Case& one) -> std::string {
      if (!serves(algorithm, one.problem)) return "";
      const std::string wrong = run_case(one, rank, comm, memory);
      return wrong.empty() ? "" : std::string(algorithm.name) + ": " + wrong;
    });
    if (!complaint.empty()) return complaint;
  }
  return "";
}

TEST_CASE("every algorithm gives every collective's exact result") {
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.chunkBytes = 2048;
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    const Ranks communicator(ranks, config);
    communicator.run([&](int rank, paceComm_t comm) {
      // 1031 elements: messages in cells and in slots, and several chunks
      std::vector<std::byte> memory(16 * 1031 * static_cast<std::size_t>(ranks));
      return every_algorithm(rank, comm, ranks, {0, 1, 1031}, memory.data());
    });
  }
}

TEST_CASE("ranks work in place beside ranks that do not") {
  for (const int ranks : {2, 3, 4}) {
    const Ranks communicator(ranks);
    communicator.run([&](int rank, paceComm_t comm) {
      const std::vector<std::size_t> counts{3, 300, 5000, 40000};
      std::vector<std::byte> memory(16 * counts.back() * static_cast<std::size_t>(ranks));
      return each_case(ranks, counts, [&](Case one) {
        one.problem.in_place = one.problem.in_place == (rank == one.problem.root);
        return run_case(one, rank, comm, memory.data());
      });
    });
  }
}

TEST_CASE("messages in memory of paceMemAlloc are read where they are") {
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.chunkBytes = 16 << 10;
  for (int ranks : {2, 3}) {
    const Ranks communicator(ranks, config);
    communicator.run([&](int rank, paceComm_t comm) -> std::string {
      constexpr std::size_t count = 21001;  // of one byte: a whole chunk and a part
      void* memory = nullptr;
      PACE_EXPECT(paceMemAlloc(&memory, 16 * count * static_cast<std::size_t>(ranks)));
      const std::string complaint = every_algorithm(rank, comm, ranks, {count}, static_cast<std::byte*>(memory));
      PACE_EXPECT(paceBarrier(comm, nullptr));
      PACE_EXPECT(paceMemFree(memory));
      return complaint;
    });
  }
}

TEST_CASE("a rank that lacks memory anywhere in a call ends it for all") {
  bool lacks = true;
  int not_begun = 0;
  int not_ended = 0;
  for (long nth = 1; lacks; ++nth) {
    const Ranks communicator(2);
    std::array<paceResult_t, 2> ended{};
    communicator.run([&](int rank, paceComm_t comm) -> std::string {
      constexpr std::size_t count = 100000;
      void* memory = nullptr;
      PACE_EXPECT(paceMemAlloc(&memory, count));  // which a call must look up, and the other rank map
      if (rank == 0) fail_allocation(nth);
      paceResult_t& result = ended[static_cast<std::size_t>(rank)] =
          paceBroadcast(memory, memory, count, paceUint8, 0, comm, nullptr);
      if (rank == 0) lacks = !spare_allocation();
      const std::string why = paceGetLastError(nullptr);
      PACE_EXPECT(paceMemFree(memory));
      if (rank == 0 && lacks) PACE_EXPECT(result, paceSystemError);
      if (rank == 1 && result != paceSuccess) {
        PACE_EXPECT(result, paceRemoteError);
        if (why.ends_with(") could not begin its broadcast: beginning a call: Cannot allocate memory"))
          ++not_begun;
        else if (why.ends_with(") could not go on with its broadcast: in a call: Cannot allocate memory"))
          ++not_ended;
        else
          return why;
      }
      return "";
    });
    // The other's call is whole where all that it needs has come before.
    CHECK((ended[1] != paceSuccess || !lacks || not_ended > 0));
  }
  CHECK(not_begun > 0);
  CHECK(not_ended > 0);
}

// There is no memory yet into which it could be copied: UBSAN sees whether that is tried.
TEST_CASE("the first call may be an all-to-all of nothing, in place") {
  const Ranks communicator(2);
  communicator.run([](int, paceComm_t comm) {
    int here = 7;
    return expect(paceAllToAll(&here, &here, 0, paceInt32, comm, nullptr));
  });
}

TEST_CASE("outputs that are written past the cache are exact") {
  constexpr int ranks = 3;
  const std::size_t count = streaming_from(1, 2).folds / sizeof(int) + 1031;
  const Ranks communicator(ranks);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    std::vector<std::byte> memory(2 * ranks * sizeof(int) * count + 4096);
    for (const Collective which : {Collective::broadcast, Collective::all_reduce, Collective::reduce_scatter,
                                   Collective::all_gather, Collective::all_to_all, Collective::gather}) {
      Case one;
      one.problem.collective = which;
      one.problem.ranks = ranks;
      one.problem.count = count;
      const std::string wrong = run_case(one, rank, comm, memory.data());
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
}

TEST_CASE("long blocks that are read from the other ranks' memory are exact, whatever the algorithm") {
  constexpr std::size_t count = (1 << 20) / sizeof(int) + 1031;  // more than is read at once
  for (const int ranks : {2, 3}) {
    const Ranks communicator(ranks);
    communicator.run([&](int rank, paceComm_t comm) -> std::string {
      std::vector<std::byte> memory(2 * static_cast<std::size_t>(ranks) * sizeof(int) * count + 4096);
      for (const Algorithm& algorithm : algorithms()) {
        PACE_EXPECT(paceCommSetAlgorithm(comm, std::string(algorithm.name).c_str()));
        for (const Collective which : {Collective::scatter, Collective::all_to_all})
          for (const bool in_place : {false, true}) {
            Case one;
            one.problem.collective = which;
            one.problem.ranks = ranks;
            one.problem.root = which == Collective::scatter ? ranks - 1 : 0;
            one.problem.count = count;
            one.problem.in_place = in_place;
            if (!serves(algorithm, one.problem)) continue;
            const std::string wrong = run_case(one, rank, comm, memory.data());
            if (!wrong.empty()) return std::string(algorithm.name) + ": " + wrong;
          }
      }
      return "";
    });
  }
}

TEST_CASE("blocks in memory that no other process can read are exact, where others' are read in place") {
  constexpr std::size_t count = 100'000;  // longer than a slot
  const Ranks communicator(2);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    std::vector<std::byte> own(4 * sizeof(int) * count + 4096);
    const SecretMemory secret(own.size());
    PACE_EXPECT(paceCommSetAlgorithm(comm, "direct protocol=single_copy"));
    for (const Collective which : {Collective::scatter, Collective::all_to_all}) {
      Case one;
      one.problem.collective = which;
      one.problem.ranks = 2;
      one.problem.count = count;
      const bool kept_secret = rank == 0 && !secret.span().empty();
      const std::string wrong = run_case(one, rank, comm, kept_secret ? secret.span().data() : own.data());
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
}

TEST_CASE("who leaves learns of calls that others have made alone") {
  int value = 0;
  const auto broadcast = [&](paceComm_t comm, int root) {
    return paceBroadcast(&value, &value, 1, paceInt32, root, comm, nullptr);
  };
  const auto everyone = [&](int ranks, const auto& body) {
    paceUniqueId id{};
    REQUIRE(paceGetUniqueId(&id) == paceSuccess);
    on_every_rank(ranks, [&](int rank) -> std::string {
      paceComm_t comm = nullptr;
      PACE_EXPECT(paceCommInitRank(&comm, ranks, id, rank));
      return body(rank, comm);
    });
  };
  for (const bool traced : {false, true}) {
    std::latch all_have_called(2);
    everyone(2, [&](int rank, paceComm_t comm) -> std::string {
      if (traced) PACE_EXPECT(paceTraceStart(comm));
      PACE_EXPECT(broadcast(comm, rank));  // each takes itself for the root
      all_have_called.arrive_and_wait();
      PACE_EXPECT(paceCommDestroy(comm), paceMismatch);
      const std::string sentence = paceGetLastError(nullptr);
      const std::string wanted =
          fmt::format("rank {0} called broadcast #1 of 1 int32, root {0}, which rank {1} has not", 1 - rank, rank);
      if (!sentence.starts_with(wanted)) return sentence;
      return "";
    });
  }
  std::latch sent(2);
  everyone(2, [&](int rank, paceComm_t comm) -> std::string {
    if (rank == 0) {
      PACE_EXPECT(paceSend(&value, 1, paceInt32, 1, comm, nullptr));
    }
    sent.arrive_and_wait();
    return expect(paceCommDestroy(comm), rank == 0 ? paceSuccess : paceMismatch);
  });
}

TEST_CASE("an average in float16 does not overflow where the sum would") {
  const Ranks communicator(4);
  communicator.run([](int, paceComm_t comm) -> std::string {
    std::uint16_t value = 0;
    store_element(DataType::float16, 60000, &value);
    const std::uint16_t wanted = value;
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceFloat16, paceAvg, comm, nullptr));
    PACE_REQUIRE(value == wanted);
    return "";
  });
}

TEST_CASE("an average of integers rounds towards zero") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    const int values[] = {-rank - 2, rank + 2, -1};  // sums -9 + 0, 9, -3
    int averages[3];
    PACE_EXPECT(paceAllReduce(values, averages, 3, paceInt32, paceAvg, comm, nullptr));
    PACE_REQUIRE(averages[0] == -3);
    PACE_REQUIRE(averages[1] == 3);
    int odd = rank == 0 ? -5 : 0;
    PACE_EXPECT(paceAllReduce(&odd, &odd, 1, paceInt32, paceAvg, comm, nullptr));
    PACE_REQUIRE(odd == -1);
    return "";
  });
}

TEST_CASE("premulsum multiplies by each rank's own factor and leaves the input alone") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    for (const DataType type : {DataType::float16, DataType::int32, DataType::float64, DataType::int8}) {
      std::array<std::byte, 8> factor{};
      store_element(type, rank + 2, factor.data());
      paceRedOp_t op{};
      PACE_EXPECT(paceRedOpCreatePreMulSum(&op, factor.data(), static_cast<paceDataType_t>(type), comm));
      std::array<std::byte, 40> send{};
      std::array<std::byte, 40> recv{};
      for (std::size_t i = 0; i < 5; ++i) store_element(type, 1 + static_cast<double>(i), &send[i * size_of(type)]);
      const auto before = send;
      PACE_EXPECT(paceAllReduce(send.data(), recv.data(), 5, static_cast<paceDataType_t>(type), op, comm, nullptr));
      PACE_REQUIRE(send == before);
      for (std::size_t i = 0; i < 5; ++i)
        PACE_REQUIRE(load_element(type, &recv[i * size_of(type)]) == 9 * (1 + static_cast<double>(i)));
      PACE_EXPECT(paceRedOpDestroy(op, comm));
      PACE_EXPECT(paceRedOpDestroy(op, comm), paceInvalidArgument);
      PACE_EXPECT(paceAllReduce(send.data(), recv.data(), 5, static_cast<paceDataType_t>(type), op, comm, nullptr),
                  paceInvalidArgument);
    }
    return "";
  });
}

TEST_CASE("floating sums have the same bits on every rank, and again") {
  constexpr std::size_t count = 4099;
  const Ranks communicator(5);
  for (const char* algorithm : {"ring", "two_shot", "rabenseifner", "double_tree", "recursive_doubling"}) {
    std::vector<std::vector<float>> results(10, std::vector<float>(count));
    communicator.run([&](int rank, paceComm_t comm) -> std::string {
      PACE_EXPECT(paceCommSetAlgorithm(comm, algorithm));
      std::vector<float> send(count);
      for (std::size_t i = 0; i < count; ++i)
        send[i] = 1.0F / static_cast<float>(3 * i + 7 * static_cast<std::size_t>(rank) + 1);
      for (int again = 0; again < 2; ++again)
        PACE_EXPECT(paceAllReduce(send.data(), results[static_cast<std::size_t>(5 * again + rank)].data(), count,
                                  paceFloat32, paceSum, comm, nullptr));
      return "";
    });
    for (const auto& result : results) CHECK(result == results[0]);
  }
}

TEST_CASE("all-to-all in place") {
  const Ranks communicator(4);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    for (std::size_t count : {1U, 5000U}) {
      std::vector<int> data(4 * count);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = 100 * rank + static_cast<int>(i / count);
      PACE_EXPECT(paceAllToAll(data.data(), data.data(), count, paceInt32, comm, nullptr));
      for (std::size_t i = 0; i < data.size(); ++i) PACE_REQUIRE(data[i] == 100 * static_cast<int>(i / count) + rank);
    }
    return "";
  });
}

TEST_CASE("an abort from another thread ends calls under way on every rank") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    if (rank == 2) {  // never comes
      PACE_EXPECT(paceCommAbort(comm));
      PACE_EXPECT(paceBarrier(comm, nullptr), paceAborted);
      return "";
    }
    PACE_EXPECT(paceBarrier(comm, nullptr), paceAborted);
    PACE_REQUIRE(std::string(paceGetLastError(comm)).find("rank 2 aborted") != std::string::npos);
    paceResult_t state{};
    PACE_EXPECT(paceCommGetAsyncError(comm, &state));
    PACE_REQUIRE(state == paceAborted);
    return "";
  });
}

TEST_CASE("two ranks that call different things are both told") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    std::array<int, 8> data{};
    PACE_EXPECT(paceAllReduce(data.data(), data.data(), rank == 0 ? 8 : 4, paceInt32, paceSum, comm, nullptr),
                paceMismatch);
    return "";
  });
}

// `odd` runs one algorithm, the others another. Who has nothing to wait for may be done before it is found out.
void check_different_algorithms(const Problem& problem, int odd, const std::string& one, const std::string& other) {
  INFO(one, " at rank ", odd, ", ", other, " at the others");
  Case tried;
  tried.problem = problem;
  const Ranks communicator(problem.ranks);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    PACE_EXPECT(paceCommSetAlgorithm(comm, (rank == odd ? one : other).c_str()));
    std::vector<std::byte> memory(Buffers::bytes(tried, rank));
    const Buffers buffers(tried, rank, memory.data());
    const paceResult_t result = call(tried, buffers.send, buffers.recv, comm);
    PACE_REQUIRE((result == paceSuccess || result == paceMismatch));
    PACE_EXPECT(paceBarrier(comm, nullptr), paceMismatch);
    return "";
  });
}

TEST_CASE("ranks that run one call by different algorithms are told") {
  for (const Collective which :
       {Collective::broadcast, Collective::all_reduce, Collective::all_gather, Collective::gather}) {
    const Problem problem{.collective = which, .ranks = 3, .count = 5000};
    const Algorithm* before = nullptr;
    for (const Algorithm& algorithm : algorithms()) {
      if (!serves(algorithm, problem)) continue;
      for (int odd = 0; before != nullptr && odd < problem.ranks; ++odd)
        check_different_algorithms(problem, odd, std::string(before->name), std::string(algorithm.name));
      before = &algorithm;
    }
  }
}

TEST_CASE("ranks that ask for different radices are told") {
  for (const Collective which : {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter})
    for (int odd = 0; odd < 4; ++odd)
      check_different_algorithms({.collective = which, .ranks = 4, .count = 100}, odd, "knomial radix=2",
                                 "knomial radix=3");
  check_different_algorithms({.collective = Collective::all_reduce, .ranks = 4, .count = 100}, 1,
                             "recursive_doubling radix=2", "recursive_doubling radix=4");
}

TEST_CASE("an algorithm without a radix takes none") {
  const Ranks communicator(1);
  CHECK(paceCommSetAlgorithm(communicator[0], "ring radix=3") == paceInvalidArgument);
  CHECK(std::string(paceGetLastError(communicator[0])).find("ring has no radix") != std::string::npos);
  CHECK(paceCommSetAlgorithm(communicator[0], "knomial radix=3") == paceSuccess);
}

TEST_CASE("a rank that left is named") {
  const Ranks communicator(2);
  std::atomic<bool> left = false;  // else what rank 0 has called meanwhile would be an error of leaving
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    PACE_EXPECT(paceBarrier(comm, nullptr));
    if (rank == 1) {
      std::string complaint = expect(paceCommDestroy(comm));
      left = true;
      return complaint;
    }
    while (!left) std::this_thread::yield();
    int value = 1;
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr), paceRemoteError);
    PACE_REQUIRE(std::string(paceGetLastError(comm)).find("rank 1 left") != std::string::npos);
    return "";
  });
}

// More than 2^31 bytes: half a minute and 9 GB.
TEST_CASE("counts above 2^31 bytes" * doctest::skip(std::getenv("PACELINE_TEST_LONG") == nullptr)) {
  constexpr std::size_t count = (std::size_t{1} << 31) + 3;
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    std::vector<std::int8_t> data(count, static_cast<std::int8_t>(rank + 1));
    PACE_EXPECT(paceAllReduce(data.data(), data.data(), count, paceInt8, paceSum, comm, nullptr));
    PACE_REQUIRE(std::count(data.begin(), data.end(), 3) == static_cast<std::ptrdiff_t>(count));
    std::fill(data.begin(), data.end(), static_cast<std::int8_t>(5 + rank));
    PACE_EXPECT(paceBroadcast(data.data(), data.data(), count, paceInt8, 1, comm, nullptr));
    PACE_REQUIRE(std::count(data.begin(), data.end(), 6) == static_cast<std::ptrdiff_t>(count));
    return "";
  });
}

}  // namespace
}  // namespace paceline::testing
