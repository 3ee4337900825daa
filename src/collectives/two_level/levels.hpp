#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/host_layout.hpp"
#include "collectives/staged/staging.hpp"
#include "weft/communicator.hpp"

namespace weft::two_level {

/// Hosts with as many ranks each, and what plans go through there. A rank's place is its number among the ranks of its
/// host; those of one place, a rank of each host, exchange data through host memory, all places at once.
struct Levels {
  explicit Levels(HostLayout where) : layout(std::move(where)) {}

  HostLayout const layout;
  /// The ranks of this one's place, by their hosts. The courier's; empty where there is but one host.
  mutable std::optional<Communicator> across;
  /// On the device: staged::Staging::kSlots regions.
  std::shared_ptr<std::byte> scratch;
  std::size_t region_bytes = 0;

  [[nodiscard]] int place() const noexcept { return layout.local_index(layout.rank()); }
  [[nodiscard]] std::size_t places() const noexcept { return layout.locals().size(); }
  [[nodiscard]] int host() const noexcept { return layout.host_of(layout.rank()); }
  [[nodiscard]] std::size_t hosts() const noexcept { return layout.hosts().size(); }
  /// The rank of this one's place there.
  [[nodiscard]] int rank_on(std::size_t host) const noexcept {
    return layout.hosts()[host][static_cast<std::size_t>(place())];
  }
  [[nodiscard]] std::byte* scratch_of(std::size_t step) const noexcept {
    return scratch.get() + step % staged::Staging::kSlots * region_bytes;
  }
};

/// Elements of a buffer, a part for every place.
struct PartsOfPlaces {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;

  void add(std::size_t offset, std::size_t count) {
    counts.push_back(count);
    offsets.push_back(offset);
  }
};

/// A call among the ranks of a host: `equal` where the parts are, side by side, and `unequal` otherwise. Its whole
/// buffer begins at `base`, in elements of that whose parts they are.
struct InnerCall {
  Call call;
  std::size_t base = 0;
};
[[nodiscard]] InnerCall inner(Call const& outer, Operation equal, Operation unequal, PartsOfPlaces const& parts,
                              int place);

/// What ranks of a host combine by, and what combines the hosts' results: the mean of equally many is the mean of
/// their means, and a scale is for contributions alone.
[[nodiscard]] inline ReduceOp between_hosts(ReduceOp op) noexcept {
  return op == ReduceOp::premul_sum ? ReduceOp::sum : op;
}

[[nodiscard]] inline std::byte* at(void* base, std::size_t bytes) noexcept {
  return static_cast<std::byte*>(base) + bytes;
}
[[nodiscard]] inline std::byte const* at(void const* base, std::size_t bytes) noexcept {
  return static_cast<std::byte const*>(base) + bytes;
}

}  // namespace weft::two_level
