#pragma once

#include <optional>
#include <vector>

#include "collectives/outcome.hpp"
#include "weft/bootstrap.hpp"

namespace weft {

/// The ranks that are left of a failed communicator, as a bootstrap for the new one that they form. The failed
/// communicator must outlive it.
class Survivors : public Bootstrap {
 public:
  /// Their ranks in the failed communicator, ascending; equal on all of them.
  [[nodiscard]] virtual std::vector<int> const& members() const noexcept = 0;

  /// The last step. Collective, also for a rank whose part has failed: others that wait for it then learn of that.
  /// Returns a failure of one of the ranks, the same on all, or nothing where all succeeded. Where the code is
  /// peer_lost, a rank was lost on the way, and all begin again without it. @throws Error{peer_lost|timeout}
  [[nodiscard]] virtual std::optional<Error> conclude(Outcome const& mine) = 0;

  [[nodiscard]] int size() const noexcept final { return static_cast<int>(members().size()); }
  [[nodiscard]] std::string name() const final { return "shrink"; }
};

}  // namespace weft
