#include "cuda/memory/shared_pieces.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cuda/memory/rank_bits.h"

namespace paceline::cuda {
namespace {

constexpr std::uint64_t not_mapped = 1;
// Pieces that are offered in one call: each costs a descriptor until it is sent, and every rank some of the driver's
// time.
constexpr int offers_in_a_call = 64;
// Known pieces that are looked at in one call, in turn, so that what was freed is given back though nothing is offered.
constexpr int checks_in_a_call = 3;

}  // namespace

SharedPieces::~SharedPieces() {
  for (const Mirror& mirror : mirrors_)
    for (const auto& [number, part] : mirror.parts) mirror.range->unmap(part.offset, part.bytes);
}

void SharedPieces::connect(int peer, HandleSocket socket, Bell& bell) {
  Peer& its = peers_[static_cast<std::size_t>(peer)];
  its.socket = std::move(socket);
  its.bell = &bell;
}

void SharedPieces::look() {
  for (Peer& peer : peers_) flush(peer);
  const bool all_sent = std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.outbox.empty(); });
  offers_left_ = all_sent ? offers_in_a_call : 0;
  swept_ = false;
  if (all_sent) check_some();
  // Acquire: the letters were sent before.
  const std::uint32_t rung = bell_.load(std::memory_order_acquire);
  if (rung == rung_) return;
  rung_ = rung;
  for (int from = 0; from < ranks_; ++from) {
    HandleSocket& socket = peers_[static_cast<std::size_t>(from)].socket;
    Letter letter{};
    FileDescriptor descriptor;
    while (socket.receive(std::as_writable_bytes(std::span(&letter, 1)), descriptor) == HandleSocket::Outcome::done)
      take(from, letter, std::move(descriptor));
  }
}

bool SharedPieces::sights(std::uint64_t buffer, std::uint64_t bytes, Sights& into) {
  into.fill(0);
  Sights found{};
  std::uint32_t without = 0;  // bit r: rank r does not see some piece
  for (std::uint64_t at = buffer; at < buffer + bytes;) {
    const MemoryPiece piece = piece_at(at);
    if (piece.bytes == 0) return false;
    const Offered* const offered = offer(piece);
    if (offered == nullptr) return false;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == rank_) continue;
      const std::uint64_t seen = offered->seen[static_cast<std::size_t>(rank)];
      const std::uint64_t sight = seen + (at - piece.base);
      std::uint64_t& first = found[static_cast<std::size_t>(rank)];
      if (at == buffer) first = sight;
      if (seen <= not_mapped || sight != first + (at - buffer)) without |= only(rank);
    }
    at = piece.base + piece.bytes;
  }
  found[static_cast<std::size_t>(rank_)] = buffer;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank)
    if ((without >> rank & 1) == 0) into[rank] = found[rank];
  return without == 0;
}

// A piece as the others know it; nullptr: it cannot be offered in this call.
const SharedPieces::Offered* SharedPieces::offer(const MemoryPiece& piece) {
  const auto is_known = [&](const auto& place) {
    return place != offered_.end() && place->second.id == piece.id && place->second.bytes == piece.bytes;
  };
  if (const auto known = offered_.find(piece.base); is_known(known)) return &known->second;
  if (offers_left_ == 0) return nullptr;
  --offers_left_;
  // What lies there now may overlap what lay there before: that goes first.
  if (!std::exchange(swept_, true))
    for (auto place = offered_.begin(); place != offered_.end();) place = check(place);
  const auto [place, is_new] = offered_.try_emplace(piece.base);
  if (!is_new) return nullptr;  // it has changed while we looked
  Offered& offered = place->second;
  offered.id = piece.id;
  offered.bytes = piece.bytes;
  offered.number = ++last_number_;
  const auto handle = std::make_shared<const PieceHandle>(handle_of_piece(piece.base));
  if (handle->kind == PieceHandle::Kind::none) return &offered;  // nobody will ever answer
  Letter letter{};
  letter.kind = Letter::Kind::offer;
  letter.handle = handle->kind;
  letter.number = offered.number;
  letter.base = piece.base;
  letter.bytes = piece.bytes;
  letter.range = piece.range;
  letter.range_bytes = piece.range_bytes;
  letter.fabric = handle->fabric;
  for (int peer = 0; peer < ranks_; ++peer) post(peer, letter, handle);
  return &offered;
}

// Withdraws a piece if it has been freed. Returns what comes after it.
SharedPieces::Known SharedPieces::check(Known place) {
  const auto& [base, offered] = *place;
  const MemoryPiece now = piece_at(base);
  if (now.base == base && now.bytes == offered.bytes && now.id == offered.id) return std::next(place);
  Letter letter{};
  letter.kind = Letter::Kind::withdrawal;
  letter.number = offered.number;
  for (int peer = 0; peer < ranks_; ++peer) post(peer, letter, nullptr);
  return offered_.erase(place);
}

void SharedPieces::check_some() {
  for (int i = 0; i < checks_in_a_call && !offered_.empty(); ++i) {
    auto place = offered_.upper_bound(checked_);
    if (place == offered_.end()) place = offered_.begin();
    checked_ = place->first;
    check(place);
  }
}

void SharedPieces::post(int peer, const Letter& letter, const std::shared_ptr<const PieceHandle>& handle) {
  Peer& its = peers_[static_cast<std::size_t>(peer)];
  if (!its.socket.open()) return;
  its.outbox.push_back({letter, handle});
  flush(its);
}

void SharedPieces::flush(Peer& peer) {
  bool sent = false;
  while (!peer.outbox.empty()) {
    const Outgoing& next = peer.outbox.front();
    const int descriptor = next.handle == nullptr ? -1 : next.handle->descriptor.get();
    const auto outcome = peer.socket.send(std::as_bytes(std::span(&next.letter, 1)), descriptor);
    if (outcome == HandleSocket::Outcome::later) break;
    if (outcome == HandleSocket::Outcome::gone) {
      peer.outbox.clear();
      break;
    }
    sent = true;
    peer.outbox.pop_front();
  }
  // Release: after the letters.
  if (sent) peer.bell->fetch_add(1, std::memory_order_release);
}

void SharedPieces::take(int from, const Letter& letter, FileDescriptor descriptor) {
  switch (letter.kind) {
    case Letter::Kind::offer: {
      Letter answer = letter;
      answer.kind = Letter::Kind::answer;
      answer.seen = mirror(from, letter, std::move(descriptor));
      post(from, answer, nullptr);
      break;
    }
    case Letter::Kind::answer: {
      const auto place = offered_.find(letter.base);
      if (place != offered_.end() && place->second.number == letter.number)
        place->second.seen[static_cast<std::size_t>(from)] = letter.seen;
      break;
    }
    case Letter::Kind::withdrawal: let_go(from, letter.number); break;
  }
}

// Maps a piece; where, or not_mapped.
std::uint64_t SharedPieces::mirror(int owner, const Letter& offer, FileDescriptor descriptor) {
  PieceHandle handle;
  handle.kind = offer.handle;
  handle.descriptor = std::move(descriptor);
  handle.fabric = offer.fabric;
  const bool is_whole = handle.kind == PieceHandle::Kind::fabric || handle.descriptor.valid();
  if (!is_whole || offer.base < offer.range) return not_mapped;
  auto place = std::find_if(mirrors_.begin(), mirrors_.end(), [&](const Mirror& mirror) {
    return mirror.owner == owner && mirror.base == offer.range && mirror.bytes == offer.range_bytes;
  });
  if (place == mirrors_.end()) {
    auto range = MirroredRange::reserve(offer.range_bytes);
    if (range == nullptr) return not_mapped;
    mirrors_.push_back({owner, offer.range, offer.range_bytes, std::move(range), {}});
    place = std::prev(mirrors_.end());
  }
  const std::uint64_t offset = offer.base - offer.range;
  if (!place->range->map(offset, offer.bytes, handle)) {
    if (place->parts.empty()) mirrors_.erase(place);
    return not_mapped;
  }
  place->parts[offer.number] = {offset, offer.bytes};
  return place->range->address() + offset;
}

void SharedPieces::let_go(int owner, std::uint64_t number) {
  const auto has_it = [&](const Mirror& mirror) { return mirror.owner == owner && mirror.parts.count(number) != 0; };
  const auto place = std::find_if(mirrors_.begin(), mirrors_.end(), has_it);
  if (place == mirrors_.end()) return;
  const Mirror::Part part = place->parts[number];
  place->range->unmap(part.offset, part.bytes);
  place->parts.erase(number);
  if (place->parts.empty()) mirrors_.erase(place);
}

}  // namespace paceline::cuda
