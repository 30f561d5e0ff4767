// Ranks as threads of one process, connected over 127.0.0.1, for the tests of the TCP transport.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "transport/pattern.h"
#include "transport/tcp.h"

namespace paceline {

inline Clock::time_point seconds_from_now(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

inline std::string host_of_rank(int rank) { return "node-" + std::string(1, static_cast<char>('a' + rank)); }

inline Call sum_of(std::uint64_t count, std::uint32_t sequence = 1) {
  return make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, count, sequence);
}

// The listeners of `ranks` ranks on loopback, and what each rank needs to connect.
struct TcpRanks {
  explicit TcpRanks(int ranks, int channels = 1) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto listener = TcpListener::open("127.0.0.1");
      REQUIRE(listener.ok());
      listeners.push_back(std::move(*listener));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      TcpGroup group{77, rank, ranks, channels, host_of_rank(rank), "a secret", {}};
      for (int peer = 0; peer < ranks; ++peer)
        if (peer != rank)
          group.peers.push_back(
              {peer, host_of_rank(peer), "127.0.0.1", listeners[static_cast<std::size_t>(peer)].port()});
      groups.push_back(std::move(group));
    }
  }

  Result<std::unique_ptr<TcpTransport>> connect(int rank, double seconds = 20) {
    const auto i = static_cast<std::size_t>(rank);
    return TcpTransport::connect(std::move(listeners[i]), groups[i], seconds_from_now(seconds));
  }

  // Every rank, in a thread of its own.
  template <class Body>
  void each(const Body& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < groups.size(); ++rank)
      threads.emplace_back([&, rank] { body(static_cast<int>(rank)); });
    for (auto& thread : threads) thread.join();
  }

  std::vector<TcpListener> listeners;
  std::vector<TcpGroup> groups;
};

// Rank 1 of two with its transport, and rank 0 as bare connections, one a channel, on which a test says what it likes.
struct BareRank0 {
  explicit BareRank0(int channels) : job(2, channels), lines(static_cast<std::size_t>(channels)) {
    std::thread rank_0([&] {
      for (std::uint32_t channel = 0; channel < lines.size(); ++channel) {
        auto line = connect_to("127.0.0.1", job.listeners[1].port(), seconds_from_now(20));
        if (!line.ok()) return;  // the other side says so
        const Hello hello{data_connection, 0, channel, 77};
        CHECK(introduce(line->get(), "a secret", hello, seconds_from_now(20)).ok());
        lines[channel] = std::move(*line);
      }
    });
    job.groups[1].has_left = [this](int) { return left; };
    auto connected = job.connect(1);
    rank_0.join();
    REQUIRE_MESSAGE(connected.ok(), connected.status().message());
    transport = std::move(*connected);
  }

  void say(int channel, MessageKind kind, const Call& call, std::size_t length = 0) {
    const auto header = encode({kind, length, call});
    std::vector<std::byte> frame(header.begin(), header.end());
    frame.resize(frame.size() + length);
    CHECK(send_all(lines[static_cast<std::size_t>(channel)].get(), frame, seconds_from_now(20)).ok());
  }

  // The next frame of a channel, which has no data.
  MessageHeader hear(int channel) {
    EncodedHeader frame{};
    for (std::size_t have = 0; have < frame.size();) {
      const auto got = receive_some(lines[static_cast<std::size_t>(channel)].get(), std::span(frame).subspan(have),
                                    seconds_from_now(20));
      REQUIRE(got.ok());
      have += *got;
    }
    const auto header = decode(frame);
    REQUIRE(header.ok());
    return *header;
  }

  bool left = false;  // what rank 1 knows of it
  TcpRanks job;
  std::vector<PrivateDescriptor> lines;
  std::unique_ptr<TcpTransport> transport;
};

// Every rank with its transport.
inline void run_ranks(int ranks, int channels, const std::function<void(int, TcpTransport&)>& body) {
  TcpRanks job(ranks, channels);
  job.each([&](int rank) {
    auto transport = job.connect(rank);
    CHECK_MESSAGE(transport.ok(), transport.status().message());
    if (transport.ok()) body(rank, **transport);
  });
}

// Try until it is done or has failed; 20 s at most.
inline Attempt insist(TcpTransport& transport, const std::function<Attempt()>& attempt) {
  const auto deadline = seconds_from_now(20);
  for (;;) {
    const Attempt result = attempt();
    if (result != Attempt::later) return result;
    if (transport.progress() == Attempt::failed) return Attempt::failed;
    if (Clock::now() > deadline) return Attempt::later;
    transport.sleep(1000);
  }
}

inline Attempt give(TcpTransport& transport, int channel, std::vector<int> to, const Call& call,
                    const std::vector<std::byte>& data) {
  return insist(transport, [&] { return transport.send(channel, to, call, data); });
}

inline Attempt take(TcpTransport& transport, int channel, int from, const Call& call, std::vector<std::byte>& data) {
  return insist(transport, [&] {
    const std::byte* where = nullptr;
    const Attempt attempt = transport.receive(channel, from, call, data.size(), data.data(), &where);
    if (attempt == Attempt::done) {
      CHECK(where == data.data());
      transport.release(channel, from);
    }
    return attempt;
  });
}

// Until every message accepted on the channel has left.
inline Attempt leave(TcpTransport& transport, int channel, std::uint64_t messages) {
  return insist(transport, [&] { return transport.sent(channel) == messages ? Attempt::done : Attempt::later; });
}

}  // namespace paceline
