#include "bootstrap/strangers.h"

#include <algorithm>

namespace paceline {

void Strangers::add_to(std::vector<pollfd>& polled) {
  first_ = polled.size();
  polled.push_back({crowded() ? -1 : listener_, POLLIN, 0});
  for (const Stranger& stranger : strangers_)
    polled.push_back({stranger.socket.get(), stranger.introduction.events(), 0});
}

Clock::time_point Strangers::next_end(Clock::time_point deadline) const {
  return strangers_.empty() ? deadline : std::min(deadline, strangers_.front().since + patience());
}

Status Strangers::serve(std::span<const pollfd> polled, const Known& known, const Dropped& dropped) {
  // Strangers before the listener: whoever is nearly known must not wait behind a crowd.
  std::size_t position = first_;
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const bool stays = polled[++position].revents == 0 || listen_to(*stranger, known, dropped);
    stranger = stays ? std::next(stranger) : strangers_.erase(stranger);
  }
  if (polled[first_].revents != 0) PACE_TRY(accept());
  drop_slow();
  return {};
}

// Whether it remains a stranger.
bool Strangers::listen_to(Stranger& stranger, const Known& known, const Dropped& dropped) {
  const Status status = stranger.introduction.advance();
  if (!status.ok()) {
    dropped(status, stranger.introduction.opened());
    return false;
  }
  if (!stranger.introduction.done()) return true;
  known(stranger.introduction.hello(), std::move(stranger.socket), stranger.number);
  return false;
}

Status Strangers::accept() {
  while (!crowded()) {
    Result<PrivateDescriptor> socket = accept_from(listener_);
    if (!socket.ok()) {
      // Perhaps it is only the strangers that use up the descriptors.
      out_of_descriptors_ = !strangers_.empty();
      return out_of_descriptors_ ? Status() : socket.status();
    }
    if (!socket->valid()) return {};
    strangers_.emplace_back(std::move(*socket), secret_, ++accepted_);
  }
  return {};
}

void Strangers::drop_slow() {
  const auto limit = Clock::now() - patience();
  const std::size_t dropped = std::erase_if(strangers_, [&](const Stranger& one) { return one.since <= limit; });
  if (dropped > 0 || strangers_.empty()) out_of_descriptors_ = false;
}

}  // namespace paceline
