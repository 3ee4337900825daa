#include <fmt/format.h>

#include <algorithm>
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

/// Collective: whether `here` is true on all ranks.
bool holds_everywhere(Bootstrap& bootstrap, bool here) {
  auto const mine = static_cast<std::byte>(here ? 1 : 0);
  auto const all = bootstrap.all_gather(std::span(&mine, 1));
  return std::all_of(all.begin(), all.end(), [](std::byte one) { return one == std::byte{1}; });
}

}  // namespace

void Communicator::Impl::require_survivors() const {
  backend_->require_survivors();
}

std::shared_ptr<Survivors> Communicator::Impl::find_survivors() {
  return backend_->survivors(options.config->timeout);
}

void Communicator::Impl::end_calls() noexcept {
  auto const why =
      fmt::format("rank {} shrinks the communicator, which is over; call shrink() on every rank", validator.rank);
  backend_->fail(ErrorCode::aborted, why);  // does nothing where it has failed already
  if (device_) device_->fail(ErrorCode::aborted, why);
  finish_calls();
}

Communicator Communicator::shrink() {
  return shrink(live("shrink").options);
}

// Where a rank is lost on the way, all others fail alike, at the latest in conclude(), and begin again without it. A
// rank whose own part fails aborts the new communicator, so that the others do not wait for it.
Communicator Communicator::shrink(CommunicatorOptions const& options) {
  auto& impl = live("shrink");
  impl.check_no_group("shrink");
  impl.require_survivors();
  impl.end_calls();
  for (int attempt = 1;; ++attempt) {
    Outcome mine;
    std::optional<Communicator> made;
    std::optional<Error> failure;
    auto const survivors = impl.find_survivors();
    try {
      made.emplace(create(survivors, options));
      // Only where all ranks have a device back end. Where some lost theirs or never had one, the first call makes it.
      if (holds_everywhere(*survivors, impl.device() != nullptr))
        made->impl_->connect(*impl.device()->renew(others(survivors->members(), size())));
    } catch (Error const& error) {
      mine = Outcome::of(error);
      if (made) made->abort(error.what());
    }
    try {
      failure = survivors->conclude(mine);
    } catch (Error const& error) {
      failure = error;
    }
    if (!failure) return std::move(*made);
    if (made) made->abort(failure->what());
    if (failure->code() != ErrorCode::peer_lost || attempt > size()) throw *failure;
  }
}

}  // namespace weft
