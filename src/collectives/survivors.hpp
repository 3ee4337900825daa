#pragma once

#include <vector>

#include "weft/bootstrap.hpp"

namespace weft {

/// The ranks that are left of a communicator, as a bootstrap for the one that they form. The communicator must outlive
/// it.
class Survivors : public Bootstrap {
 public:
  /// The communicator's ranks that belong, ascending: equal on all of them.
  [[nodiscard]] virtual std::vector<int> const& members() const noexcept = 0;

  [[nodiscard]] int size() const noexcept final { return static_cast<int>(members().size()); }
  [[nodiscard]] std::string name() const final { return "shrink"; }
};

}  // namespace weft
