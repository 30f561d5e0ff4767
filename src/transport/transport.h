// How bytes get from one rank to another: the interface that engines see.
//
// A transport serves one communicator, for those of its ranks that it reaches. It is driven by the one thread that is
// inside a call: no function blocks. Messages between two ranks on one channel stay in order; plans cut them to what
// the slowest transport takes (Connections::largest_message).
//
// `to_all`: the message is one of those that go to every other rank of the communicator, which sender and receivers say
// alike; of those that the transport reaches, all are among `to`. Order is kept among these, and among the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/call.h"
#include "base/status.h"

namespace paceline {

enum class Attempt : std::uint8_t {
  done,
  later,   // nothing has happened; try again
  failed,  // failure() says why; the communicator is at its end
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;

  // Hand over one message for every rank of `to`. `later` when as many messages are under way on this channel as
  // there is room for (at least schedule.h's capacity); a message of a pair (send), which goes to one rank, waits for
  // none to other ranks. When done, the data may still be read until sent() has counted the message.
  // `stays`: the data will not change before the call ends, so its receivers may read it where it is.
  virtual Attempt send(int channel, std::span<const int> to, const Call& call, std::span<const std::byte> data,
                       bool stays, bool to_all) = 0;
  // How many of the messages accepted on this channel since the beginning, the first ones, have left their data. Those
  // of pairs leave in no common order: of them only the number is known.
  [[nodiscard]] virtual std::uint64_t sent(int channel) = 0;

  // The next message from `from`, which must be of `call` and `bytes` long (else: failed, a mismatch that names both
  // calls). When done, *data is where it lies until release(): `place` if the transport had to put it somewhere, else
  // memory of its own. While `later`, call again with the same arguments; a part may already be in `place`.
  virtual Attempt receive(int channel, int from, const Call& call, std::size_t bytes, std::byte* place,
                          const std::byte** data, bool to_all) = 0;
  // A hint, while another message is waited for: one from `from` is needed next.
  virtual void expect(int /*channel*/, int /*from*/, bool /*to_all*/) {}
  // The message last received from `from` on this channel has been used. Failed: it may have been changed meanwhile,
  // for its sender's call has failed; what was made of it is worth nothing.
  virtual Attempt release(int channel, int from, bool to_all) = 0;
  // Where the message last received from `from` lies, if it is this rank's to write to and to send on; else nullptr.
  virtual std::byte* own(int /*channel*/, int /*from*/, bool /*to_all*/) { return nullptr; }
  // As release(), of a message for which own() says where it is: it stays there, under this number, for pass_on().
  virtual Attempt keep(int /*channel*/, int /*from*/, bool /*to_all*/, std::uint32_t* /*kept*/) {
    return Attempt::failed;
  }
  // As send() of so many bytes, to one rank, of what was kept.
  virtual Attempt pass_on(int /*channel*/, int /*to*/, const Call& /*call*/, std::uint32_t /*kept*/,
                          std::size_t /*bytes*/, bool /*to_all*/) {
    return Attempt::failed;
  }
  // Which rank has to take a message first: with `to`, before a send of `call` to these finds room; without, before
  // the first message that has not left its data does. -1: none.
  [[nodiscard]] virtual int holder(int channel, std::span<const int> to, const Call& call, bool to_all) = 0;

  // Bytes up to which a message to one rank, or to all by one, has left when it is accepted.
  [[nodiscard]] virtual std::size_t short_message() const { return 0; }

  // Move what can be moved without waiting (a transport may do its work here rather than in send and receive).
  virtual Attempt progress() { return Attempt::done; }
  // Sleep until something may have arrived, or this long (us). Between announce_sleep() and sleep() the caller looks
  // for some microseconds more: what a sender wrote before it could see the announcement becomes visible then. Should
  // that ever take longer, the sleep ends by its time.
  virtual void announce_sleep() {}
  virtual void sleep(double microseconds) = 0;

  // This rank ends a collective without a message, for it has no elements: say so to other ranks, whose compare() would
  // not hear of it.
  virtual void announce(const Call& /*call*/) {}
  // Whether nothing is ever under way: what has not come when its sender leaves was not sent.
  [[nodiscard]] virtual bool immediate() const { return false; }
  // While waiting long in `call`: say so to other ranks, and find one that is known to be inside another call, or to
  // take part no more, whichever it is. The failure() then names it. `from`: the rank waited for; -1: one that another
  // transport reaches. `owed`: a message between the two has yet to be sent, so that `from` cannot have ended the call;
  // of a pair's: `from` has yet to send it.
  virtual Attempt compare(int from, const Call& call, bool owed) = 0;
  // This rank makes no other call: an error if a message has come for one, which its sender made alone.
  [[nodiscard]] virtual Status untaken() = 0;
  // Whether `rank` is known to have left after its collective of number `sequence`.
  [[nodiscard]] virtual bool has_left(int /*rank*/, std::uint32_t* /*sequence*/) const { return false; }
  [[nodiscard]] virtual Status failure() const = 0;
};

}  // namespace paceline
