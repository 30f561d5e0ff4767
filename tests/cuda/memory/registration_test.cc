// Buffers in memory that is mapped piece by piece: several ranks, with the stand-in for the driver. What a rank reads
// at the address at which it is said to see a buffer must be what the owner wrote.
#include "cuda/memory/registration.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver/fake_driver.h"

namespace paceline::cuda {
namespace {

using paceline::testing::FakeDriver;
using paceline::testing::FakeRange;
using paceline::testing::with_fake_driver;

constexpr std::uint64_t piece = paceline::testing::fake_granularity;
constexpr auto longest_wait = std::chrono::milliseconds(1900);  // shorter than to wait for one that does not come

long open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}
long names_of_this_process() {
  const std::string prefix = "paceline-" + std::to_string(getpid()) + "-";
  const std::filesystem::directory_iterator files("/dev/shm");
  return std::count_if(begin(files), end(files),
                       [&](const auto& entry) { return entry.path().filename().string().rfind(prefix, 0) == 0; });
}

// Ranks of this process, which take each other for ranks of other processes or not.
struct Ranks {
  std::vector<std::unique_ptr<Registration>> all;

  Ranks(int ranks, bool here) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto made = Registration::create(rank, ranks, 0);
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      all.push_back(std::move(*made));
    }
    for (int rank = 0; rank < ranks; ++rank)
      for (int peer = 0; peer < ranks; ++peer)
        if (peer != rank) REQUIRE(at(rank).open(peer, at(peer).board_name(), here).ok());
    for (auto& one : all) one->settle();
  }
  Registration& at(int rank) const { return *all[static_cast<std::size_t>(rank)]; }
  // What all do at the beginning of a call, rank 0 with a buffer: where that is seen, if it is.
  [[nodiscard]] bool call(const std::byte* buffer, std::uint64_t bytes, Sights& sights) const {
    for (const auto& one : all) one->look();
    return at(0).sights(buffer, bytes, sights);
  }
  [[nodiscard]] int calls_until_seen(const std::byte* buffer, std::uint64_t bytes, Sights& sights) const {
    for (int calls = 1; calls < 50; ++calls)
      if (call(buffer, bytes, sights)) return calls;
    return -1;
  }
};

void write(std::byte* at, std::uint64_t bytes, int seed) {
  for (std::uint64_t i = 0; i < bytes; i += 4093)
    at[i] = static_cast<std::byte>(i / 4093 + static_cast<unsigned>(seed));
}
bool is_written(std::uint64_t at, std::uint64_t bytes, int seed) {
  const auto* found = reinterpret_cast<const std::byte*>(at);
  for (std::uint64_t i = 0; i < bytes; i += 4093)
    if (found[i] != static_cast<std::byte>(i / 4093 + static_cast<unsigned>(seed))) return false;
  return true;
}

TEST_CASE("registration: a buffer over several pieces is seen in one stretch, by every rank") {
  for (const bool here : {false, true})
    with_fake_driver([&](const FakeDriver& driver) {
      const long files = open_files();
      {
        FakeRange range(driver, 64 * piece);
        for (const std::uint64_t first : {4, 5, 7, 9}) range.map(first * piece, first == 5 ? 2 * piece : piece);
        range.map(8 * piece, piece);
        std::byte* const buffer = range.at(4 * piece) + 48;
        const std::uint64_t bytes = 6 * piece - 100;
        write(buffer, bytes, 3);
        const Ranks ranks(3, here);
        Sights sights{};
        // Offered in the first call, mapped in the second, known in the third.
        REQUIRE(ranks.calls_until_seen(buffer, bytes, sights) == 3);
        REQUIRE(sights[0] == reinterpret_cast<std::uint64_t>(buffer));
        for (const std::size_t rank : {1, 2}) {
          REQUIRE(sights[rank] != sights[0]);
          REQUIRE(is_written(sights[rank], bytes, 3));
          *reinterpret_cast<std::byte*>(sights[rank] + 5 * piece) = std::byte{77};
          REQUIRE(buffer[5 * piece] == std::byte{77});
        }
        // A part of what is known is known at once, what goes beyond it is not.
        REQUIRE(ranks.call(buffer + piece, piece, sights));
        REQUIRE_FALSE(ranks.call(buffer, bytes + piece, sights));
      }
      REQUIRE(open_files() == files);
      REQUIRE(driver.objects() == 0);
      REQUIRE(names_of_this_process() == 0);
    });
}

TEST_CASE("registration: who sees a buffer does so, whether or not all do") {
  for (const bool here : {false, true})
    with_fake_driver([&](const FakeDriver& driver) {
      FakeRange range(driver, 64 * piece);
      range.map(0, piece);
      range.map(piece, piece);
      const Ranks ranks(3, here);
      Sights sights{};
      for (int calls = 0; calls < 5; ++calls) {  // rank 2 makes none
        ranks.at(0).look();
        REQUIRE_FALSE(ranks.at(0).sights(range.at(0), 2 * piece, sights));
        ranks.at(1).look();
      }
      REQUIRE(sights[0] == reinterpret_cast<std::uint64_t>(range.at(0)));
      REQUIRE(sights[1] != 0);
      REQUIRE(sights[2] == 0);
      REQUIRE(ranks.calls_until_seen(range.at(0), 2 * piece, sights) > 0);
      REQUIRE_FALSE(ranks.call(range.at(0), 3 * piece, sights));
      REQUIRE(sights[1] == 0);
    });
}

TEST_CASE("registration: ranks of one process see what is on each other's GPUs, not what is on a third one") {
  with_fake_driver([](const FakeDriver& driver) {
    FakeRange range(driver, 64 * piece);
    range.map(0, piece);
    range.map(piece, piece, 1, 1);
    for (const std::uint64_t offset : {0UL, piece})
      REQUIRE(driver.call("fake_cuda_give_ipc", reinterpret_cast<std::uint64_t>(range.at(offset))) == 0);
    const Ranks ranks(2, true);
    Sights sights{};
    REQUIRE(ranks.call(range.at(0), piece, sights));
    REQUIRE(sights[1] == reinterpret_cast<std::uint64_t>(range.at(0)));
    REQUIRE(ranks.calls_until_seen(range.at(piece), piece, sights) == -1);
    REQUIRE(sights[0] == reinterpret_cast<std::uint64_t>(range.at(piece)));
    REQUIRE(sights[1] == 0);
  });
}

TEST_CASE("registration: what has no place on a full board costs little, and gets that of memory that is freed") {
  with_fake_driver([](const FakeDriver& driver) {
    constexpr std::size_t places = 256;
    std::vector<std::unique_ptr<FakeRange>> allocations;
    for (std::size_t i = 0; i < places + 2; ++i) {
      allocations.push_back(std::make_unique<FakeRange>(driver, piece));
      allocations.back()->map(0, piece);
      REQUIRE(driver.call("fake_cuda_give_ipc", reinterpret_cast<std::uint64_t>(allocations.back()->at(0))) == 0);
    }
    const Ranks ranks(2, false);
    Sights sights{};
    for (std::size_t i = 0; i < places; ++i) REQUIRE(ranks.calls_until_seen(allocations[i]->at(0), piece, sights) == 2);
    for (const std::size_t i : {places, places + 1}) REQUIRE_FALSE(ranks.call(allocations[i]->at(0), piece, sights));
    const int questions = driver.call("fake_cuda_questions");
    const int handles = driver.call("fake_cuda_ipc_handles");
    constexpr int calls = 100;
    for (int call = 0; call < calls; ++call) REQUIRE_FALSE(ranks.call(allocations[places]->at(0), piece, sights));
    REQUIRE(driver.call("fake_cuda_questions") - questions <= 2 * calls);
    REQUIRE(driver.call("fake_cuda_ipc_handles") == handles);
    REQUIRE(ranks.call(allocations[0]->at(0), piece, sights));  // what has a place keeps it

    allocations[7].reset();
    bool seen = false;
    for (std::size_t call = 0; call < places + 2; ++call) seen = ranks.call(allocations[places]->at(0), piece, sights);
    REQUIRE(seen);
    REQUIRE_FALSE(ranks.call(allocations[places + 1]->at(0), piece, sights));
  });
}

TEST_CASE("registration: ranks in step see each other's buffers in one call, whoever comes first") {
  for (const int first : {0, 1})
    with_fake_driver([&](const FakeDriver& driver) {
      FakeRange range(driver, 64 * piece);
      for (std::uint64_t i = 0; i < 8; ++i) range.map(i * piece, piece);
      const Ranks ranks(2, false);
      std::array<Sights, 2> sights{};
      std::array<bool, 2> seen{};
      const auto call = [&](int rank) {
        driver.call("cuCtxSetCurrent", driver.context());
        const auto r = static_cast<std::size_t>(rank);
        if (rank != first) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        for (int look = 0; look < 6; ++look) {
          ranks.at(rank).look();
          seen[r] = ranks.at(rank).sights(range.at(r * 4 * piece), 4 * piece, sights[r]);
          if (!ranks.at(rank).in_step([] { return false; })) return;
        }
      };
      std::thread other(call, 1);
      call(0);
      other.join();
      REQUIRE(seen[0]);
      REQUIRE(seen[1]);
    });
}

// What each rank offers in call `call`: its inputs' sights tell owner, viewer and call.
Registration::Offer offer_of(int owner, std::uint64_t call, int ranks) {
  Registration::Offer offer{7, call, {}};
  for (int viewer = 0; viewer < ranks; ++viewer)
    offer.inputs[static_cast<std::size_t>(viewer)] =
        1 + call * 100 + static_cast<unsigned>(owner * 10) + static_cast<unsigned>(viewer);
  return offer;
}

TEST_CASE("registration: ranks agree on calls that all offer, and then see all inputs") {
  with_fake_driver([](const FakeDriver&) {
    constexpr int count = 3;
    constexpr std::uint64_t calls = 3000;
    const Ranks ranks(count, false);
    std::array<std::vector<std::uint32_t>, count> said;  // numbers of agreements; 0: none
    std::array<int, count> wrong{};
    const auto run = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      for (std::uint64_t call = 0; call < calls; ++call) {
        Registration::Offer mine = offer_of(rank, call, count);
        if (call % 7 == 3 && rank == 1) mine.what = 8;
        if (call % 7 == 4 && rank == 2) mine.count += 1;
        if (call % 7 == 5 && rank == 0) mine.inputs[2] = 0;  // rank 2 does not see it
        const auto agreement = ranks.at(rank).agree(mine, [] { return false; });
        said[r].push_back(agreement ? agreement->number : 0);
        for (int owner = 0; agreement && owner < count; ++owner)
          if (agreement->inputs[static_cast<std::size_t>(owner)] != offer_of(owner, call, count).inputs[r]) ++wrong[r];
      }
    };
    std::thread one(run, 1);
    std::thread two(run, 2);
    run(0);
    one.join();
    two.join();
    for (std::size_t rank = 0; rank < count; ++rank) {
      REQUIRE(wrong[rank] == 0);
      for (std::uint64_t call = 0; call < calls; ++call)
        REQUIRE((said[rank][call] != 0) == (call % 7 < 3 || call % 7 == 6));
      REQUIRE(said[rank] == said[0]);
    }
    std::vector<std::uint32_t> numbers = said[0];
    std::erase(numbers, 0);
    REQUIRE(std::set<std::uint32_t>(numbers.begin(), numbers.end()).size() == numbers.size());
  });
}

TEST_CASE("registration: a rank that comes too late, or just then, gets the answer of the one that has gone on") {
  with_fake_driver([](const FakeDriver&) {
    int agreed = 0;
    for (int patience = 0; patience < 300; ++patience) {
      const Ranks ranks(2, false);
      std::array<std::optional<Registration::Agreement>, 2> said;
      std::thread late([&] {
        for (int i = 0; i < 5; ++i) std::this_thread::yield();
        said[1] = ranks.at(1).agree(offer_of(1, 5, 2), [] { return false; });
      });
      int looks = 0;
      said[0] = ranks.at(0).agree(offer_of(0, 5, 2), [&] { return ++looks > patience; });
      late.join();
      REQUIRE(said[0].has_value() == said[1].has_value());
      if (said[0]) {
        ++agreed;
        REQUIRE(said[0]->inputs[1] == offer_of(1, 5, 2).inputs[0]);
        REQUIRE(said[1]->inputs[0] == offer_of(0, 5, 2).inputs[1]);
      }
      // Who has waited in vain offers nothing any more: the other one finds so, and does not wait either.
      if (looks > patience) REQUIRE_FALSE(ranks.at(0).agree(offer_of(0, 6, 2), [] { return false; }));
    }
    CHECK(agreed > 0);
  });
}

TEST_CASE("registration: a rank that could not open another's board agrees to nothing, and holds nobody up") {
  with_fake_driver([](const FakeDriver&) {
    auto blind = Registration::create(0, 2, 0);
    auto other = Registration::create(1, 2, 0);
    REQUIRE(blind.ok());
    REQUIRE(other.ok());
    REQUIRE_FALSE((*blind)->open(1, "/paceline-no-such-board", false).ok());
    REQUIRE((*other)->open(0, (*blind)->board_name(), false).ok());
    (*blind)->settle();
    (*other)->settle();
    const auto begin = std::chrono::steady_clock::now();
    for (const std::uint64_t call : {1, 2, 3}) {
      REQUIRE_FALSE((*blind)->agree(offer_of(0, call, 2), [] { return false; }));
      REQUIRE_FALSE((*other)->agree(offer_of(1, call, 2), [] { return false; }));
    }
    REQUIRE(std::chrono::steady_clock::now() - begin < longest_wait);
  });
}

TEST_CASE("registration: a rank that does not come is waited for once, and an end ends the wait") {
  with_fake_driver([](const FakeDriver&) {
    using Clock = std::chrono::steady_clock;
    const auto never = [] { return false; };
    const Ranks alone(2, false);
    const auto begin = Clock::now();
    REQUIRE_FALSE(alone.at(0).in_step(never));
    const auto waited = Clock::now() - begin;
    REQUIRE(waited > std::chrono::seconds(1));
    REQUIRE(waited < std::chrono::seconds(10));
    for (int i = 0; i < 1000; ++i) REQUIRE_FALSE(alone.at(0).in_step(never));
    REQUIRE(Clock::now() - begin - waited < longest_wait);
    REQUIRE(alone.at(1).in_step(never));  // the other one is ahead

    const Ranks ended(2, false);
    int looks = 0;
    REQUIRE_FALSE(ended.at(0).in_step([&] { return ++looks == 3; }));
    REQUIRE(looks == 3);

    const Ranks here(2, true);  // perhaps one thread's
    REQUIRE_FALSE(here.at(0).in_step(never));
    REQUIRE(Clock::now() - begin - waited < longest_wait);
  });
}

TEST_CASE("registration: other memory at the same address is never taken for what was there") {
  with_fake_driver([](const FakeDriver& driver) {
    FakeRange range(driver, 64 * piece);
    for (std::uint64_t i = 0; i < 4; ++i) range.map(i * piece, piece);
    const Ranks ranks(2, false);
    Sights sights{};
    const std::uint64_t bytes = 4 * piece;
    REQUIRE(ranks.calls_until_seen(range.at(0), bytes, sights) > 0);
    for (int round = 1; round < 20; ++round) {
      const auto changed = static_cast<std::uint64_t>(round % 4);
      range.unmap(changed * piece);
      if (round % 5 == 0) {  // not there at all for some calls
        REQUIRE_FALSE(ranks.call(range.at(0), bytes, sights));
        REQUIRE(ranks.call(range.at((changed + 1) % 4 * piece), piece, sights));
      }
      range.map(changed * piece, piece);
      write(range.at(0), bytes, round);
      // Never seen at once: what the other has mapped is not this memory.
      REQUIRE_FALSE(ranks.call(range.at(0), bytes, sights));
      REQUIRE(ranks.calls_until_seen(range.at(0), bytes, sights) > 0);
      REQUIRE(is_written(sights[1], bytes, round));
    }
  });
}

TEST_CASE("registration: what was freed is let go of when something new is offered") {
  with_fake_driver([](const FakeDriver& driver) {
    const int before = driver.objects();
    FakeRange kept(driver, 4 * piece);
    kept.map(0, piece);
    auto freed = std::make_unique<FakeRange>(driver, 16 * piece);
    freed->map(0, 3 * piece);
    freed->map(3 * piece, 3 * piece);
    const Ranks ranks(2, false);
    Sights sights{};
    REQUIRE(ranks.calls_until_seen(freed->at(piece), 5 * piece, sights) > 0);
    freed.reset();
    REQUIRE(ranks.calls_until_seen(kept.at(0), piece, sights) > 0);
    // Each a range and a mapping, and the handle that the program has released: rank 0's, and rank 1's of it.
    REQUIRE(driver.objects() == before + 4);
  });
}

TEST_CASE("registration: what was freed is let go of though nothing new is offered") {
  with_fake_driver([](const FakeDriver& driver) {
    FakeRange kept(driver, 4 * piece);
    kept.map(0, piece);
    const int before = driver.objects();
    auto freed = std::make_unique<FakeRange>(driver, 64 * piece);
    for (std::uint64_t i = 0; i < 30; ++i) freed->map(i * piece, piece);
    const Ranks ranks(2, false);
    Sights sights{};
    REQUIRE(ranks.calls_until_seen(kept.at(0), piece, sights) > 0);
    REQUIRE(ranks.calls_until_seen(freed->at(0), 30 * piece, sights) > 0);
    freed.reset();
    for (int call = 0; call < 20; ++call) REQUIRE(ranks.call(kept.at(0), piece, sights));
    REQUIRE(driver.objects() == before + 2);  // what the other rank has of `kept`
  });
}

TEST_CASE("registration: pieces of other sizes at the same addresses") {
  with_fake_driver([](const FakeDriver& driver) {
    FakeRange range(driver, 64 * piece);
    const Ranks ranks(2, false);
    Sights sights{};
    const std::vector<std::vector<std::uint64_t>> ways = {{4, 4}, {1, 1, 2, 4}, {8}, {3, 5}, {2, 2, 2, 2}};
    int seed = 0;
    for (const auto& way : ways) {
      std::uint64_t at = 0;
      for (const std::uint64_t length : way) {
        range.map(at * piece, length * piece);
        at += length;
      }
      write(range.at(0), 8 * piece, ++seed);
      REQUIRE(ranks.calls_until_seen(range.at(0), 8 * piece, sights) > 1);
      REQUIRE(is_written(sights[1], 8 * piece, seed));
      at = 0;
      for (const std::uint64_t length : way) {
        range.unmap(at * piece);
        at += length;
      }
    }
  });
}

TEST_CASE("registration: memory that was not made to be shared stays unknown; a fabric handle serves too") {
  with_fake_driver([](const FakeDriver& driver) {
    FakeRange range(driver, 16 * piece);
    range.map(0, piece, 0);
    range.map(piece, piece, 8);
    range.map(2 * piece, piece, 1 | 8);
    write(range.at(piece), 2 * piece, 9);
    const Ranks ranks(2, false);
    Sights sights{};
    REQUIRE(ranks.calls_until_seen(range.at(0), piece, sights) == -1);
    REQUIRE(ranks.calls_until_seen(range.at(0), 2 * piece, sights) == -1);
    REQUIRE(ranks.calls_until_seen(range.at(piece), 2 * piece, sights) > 0);
    REQUIRE(is_written(sights[1], 2 * piece, 9));
    std::vector<std::byte> on_host(piece);
    REQUIRE_FALSE(ranks.call(on_host.data(), piece, sights));
  });
}

TEST_CASE("registration: a rank that cannot map a piece says so once, and is not asked again") {
  with_fake_driver([](const FakeDriver& driver) {
    FakeRange range(driver, 16 * piece);
    range.map(0, piece);
    range.map(piece, piece);
    const Ranks ranks(2, false);
    Sights sights{};
    driver.call("fake_cuda_refuse_imports", 1);
    REQUIRE(ranks.calls_until_seen(range.at(0), 2 * piece, sights) == -1);
    // The second piece was mapped, and serves by itself.
    REQUIRE(ranks.call(range.at(piece), piece, sights));
    REQUIRE(ranks.calls_until_seen(range.at(0), piece, sights) == -1);
  });
}

TEST_CASE("registration: hundreds of pieces, more than are offered at once or a queue holds") {
  with_fake_driver([](const FakeDriver& driver) {
    constexpr std::uint64_t count = 400;
    FakeRange range(driver, count * piece);
    for (std::uint64_t i = 0; i < count; ++i) range.map(i * piece, piece);
    write(range.at(0), count * piece, 1);
    const Ranks ranks(2, false);
    Sights sights{};
    REQUIRE(ranks.calls_until_seen(range.at(0), count * piece, sights) > 0);
    REQUIRE(is_written(sights[1], count * piece, 1));
  });
}

TEST_CASE("registration: a rank that never looks makes nobody wait, and its letters are few") {
  with_fake_driver([](const FakeDriver& driver) {
    constexpr std::uint64_t count = 400;
    FakeRange range(driver, count * piece);
    for (std::uint64_t i = 0; i < count; ++i) range.map(i * piece, piece);
    const long files = open_files();
    const Ranks ranks(2, false);
    Sights sights{};
    for (int call = 0; call < 40; ++call) {
      ranks.at(0).look();
      REQUIRE_FALSE(ranks.at(0).sights(range.at(0), count * piece, sights));
    }
    // Beside the segments and sockets: those of the last call at most are still to be sent.
    REQUIRE(open_files() < files + 100);
    REQUIRE(ranks.calls_until_seen(range.at(0), count * piece, sights) > 0);
  });
}

TEST_CASE("registration: ranks of two processes, of which one dies") {
  with_fake_driver([](const FakeDriver& driver) {
    const long files = open_files();
    {
      FakeRange range(driver, 8 * piece);
      range.map(0, piece);
      range.map(piece, piece);
      write(range.at(0), 2 * piece, 5);
      Pipe names;
      Pipe entered;
      Pipe settled;
      Pipe seen;
      const auto own = Registration::create(0, 2, 0);
      REQUIRE(own.ok());
      using Name = std::array<char, 64>;
      Name my_name{};
      std::copy((*own)->board_name().begin(), (*own)->board_name().end(), my_name.begin());
      Child other([&] {
        auto made = Registration::create(1, 2, 0);
        Name name{};
        std::copy((*made)->board_name().begin(), (*made)->board_name().end(), name.begin());
        if (!names.put(name) || !(*made)->open(0, my_name.data(), false).ok() || !entered.put(1)) return false;
        int one = 0;
        if (!settled.get(&one)) return false;
        (*made)->settle();
        for (;;) {
          (*made)->look();
          std::uint64_t at = 0;
          if (!settled.get(&at)) return false;
          if (at > 1 && !seen.put(is_written(at, 2 * piece, 5))) return false;
        }
      });
      Name name{};
      REQUIRE(names.get(&name));
      int one = 0;
      REQUIRE(entered.get(&one));
      REQUIRE((*own)->open(1, name.data(), false).ok());
      (*own)->settle();
      REQUIRE(settled.put(1));
      Sights sights{};
      bool known = false;
      for (int i = 0; i < 8000 && !known; ++i) {
        (*own)->look();
        known = (*own)->sights(range.at(0), 2 * piece, sights);
        REQUIRE(settled.put(std::uint64_t{1}));
        usleep(1000);
      }
      REQUIRE(known);
      REQUIRE(settled.put(sights[1]));
      bool right = false;
      REQUIRE(seen.get(&right));
      REQUIRE(right);
      kill(other.pid(), SIGKILL);
      REQUIRE_FALSE(other.ended_well());
      range.map(2 * piece, piece);
      for (int i = 0; i < 5; ++i) {
        (*own)->look();
        REQUIRE_FALSE((*own)->sights(range.at(0), 3 * piece, sights));
      }
    }
    REQUIRE(open_files() == files);
    REQUIRE(driver.objects() == 0);
  });
}

}  // namespace
}  // namespace paceline::cuda
