#pragma once

#include <optional>
#include <vector>

#include "collectives/outcome.hpp"
#include "weft/bootstrap.hpp"

namespace weft {

/// The ranks that are left of a communicator, as a bootstrap for the one that they form. The communicator must outlive
/// it.
class Survivors : public Bootstrap {
 public:
  /// The communicator's ranks that belong, ascending: equal on all of them.
  [[nodiscard]] virtual std::vector<int> const& members() const noexcept = 0;

  /// Collective, the last step, also of a rank whose part has failed, which others then hear of where they wait for it:
  /// a failure of one of the ranks, the same on all, or nothing where all succeeded. Its code is peer_lost where a rank
  /// was lost on the way: all form anew. @throws Error{peer_lost|timeout}
  [[nodiscard]] virtual std::optional<Error> conclude(Outcome const& mine) = 0;

  [[nodiscard]] int size() const noexcept final { return static_cast<int>(members().size()); }
  [[nodiscard]] std::string name() const final { return "shrink"; }
};

}  // namespace weft
