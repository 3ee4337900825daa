#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "collectives/outcome.hpp"
#include "collectives/survivors.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// Ranks of `size` that are not among `members`.
std::vector<int> others(std::vector<int> const& members, int size) {
  std::vector<int> rest;
  auto next = members.begin();
  for (int rank = 0; rank < size; ++rank) {
    if (next != members.end() && *next == rank) {
      ++next;
    } else {
      rest.push_back(rank);
    }
  }
  return rest;
}

}  // namespace

std::shared_ptr<Survivors> Communicator::Impl::find_survivors() {
  return backend_->survivors(options.config->timeout);
}

void Communicator::Impl::end_calls() noexcept {
  auto const why =
      fmt::format("rank {} shrinks the communicator, which is over; call shrink() on every rank", validator.rank);
  backend_->fail(ErrorCode::aborted, why);  // unless it has failed
  if (device_) device_->fail(ErrorCode::aborted, why);
  finish_calls();
}

Communicator Communicator::shrink() {
  return shrink(live("shrink").options);
}

// A rank that is lost on the way makes all others fail alike, at the latest when they tell one another how it went:
// then they begin again without it.
Communicator Communicator::shrink(CommunicatorOptions const& options) {
  auto& impl = live("shrink");
  impl.check_no_group("shrink");
  impl.end_calls();
  for (int attempt = 1;; ++attempt) {
    auto const survivors = impl.find_survivors();
    Outcome mine;
    std::optional<Communicator> made;
    try {
      made.emplace(create(survivors, options));
      if (impl.device() != nullptr) made->impl_->connect(*impl.device()->renew(others(survivors->members(), size())));
    } catch (Error const& error) {
      mine = Outcome::of(error);
    }
    try {
      agree(*survivors, mine);
      return std::move(*made);
    } catch (Error const& error) {
      if (made) made->abort("another rank was lost");
      if (error.code() != ErrorCode::peer_lost || attempt > size()) throw;
    }
  }
}

}  // namespace weft
