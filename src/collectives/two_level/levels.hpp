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

/// Hosts with equally many ranks, and the resources that plans use. A rank's place is its number among the ranks of its
/// host. The ranks of one place, one from each host, exchange data through host memory; all places do so at once.
struct Levels {
  explicit Levels(HostLayout where) : layout(std::move(where)) {}

  HostLayout const layout;
  /// The ranks of this rank's place, in the order of their hosts. Only the courier uses it; empty with a single host.
  mutable std::optional<Communicator> across;
  /// Device memory: staged::Staging::kSlots regions of `region_bytes`.
  std::shared_ptr<std::byte> scratch;
  std::size_t region_bytes = 0;

  [[nodiscard]] int place() const noexcept { return layout.local_index(layout.rank()); }
  [[nodiscard]] std::size_t places() const noexcept { return layout.locals().size(); }
  [[nodiscard]] int host() const noexcept { return layout.host_of(layout.rank()); }
  [[nodiscard]] std::size_t hosts() const noexcept { return layout.hosts().size(); }
  /// The rank on `host` that has this rank's place.
  [[nodiscard]] int rank_on(std::size_t host) const noexcept {
    return layout.hosts()[host][static_cast<std::size_t>(place())];
  }
  [[nodiscard]] std::byte* scratch_of(std::size_t step) const noexcept {
    return scratch.get() + step % staged::Staging::kSlots * region_bytes;
  }
};

/// A buffer divided into a part for every place, in elements.
struct PartsOfPlaces {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;

  void add(std::size_t offset, std::size_t count) {
    counts.push_back(count);
    offsets.push_back(offset);
  }
};

/// A call among the ranks of a host, made by inner(): operation `equal` if the parts are equal and side by side, else
/// `unequal`. Its buffer begins at element `base` of the buffer that the parts are in.
struct InnerCall {
  Call call;
  std::size_t base = 0;
};
[[nodiscard]] InnerCall inner(Call const& outer, Operation equal, Operation unequal, PartsOfPlaces const& parts,
                              int place);

/// The operator that combines the hosts' results, where the ranks of a host combine by `op`. The hosts have equally
/// many ranks, so the mean of their means is the mean of all; premul_sum scales only the ranks' own contributions.
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
