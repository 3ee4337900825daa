#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sharding/shard_groups.hpp"
#include "sharding/step_settings.hpp"
#include "sharding/unit_layout.hpp"
#include "weft/stream.hpp"
#include "weft/work.hpp"

namespace weft {

/// The end of a FullySharded's step, announced behind its last call on every communicator: a rank that gathered or
/// reduced other units than the others, or brings other settings, is found out there. Not thread-safe.
class StepClose {
 public:
  /// Collective, asynchronous. `tag`: of the settings, or 0 where they are not final.
  void announce(ShardGroups& groups, Stream const& gathers, Stream const& reductions, std::uint32_t tag);
  /// Blocks until all ranks have announced it. @throws Error{mismatch} naming the unit whose calls differ, or what of
  /// `settings` does.
  void wait(UnitLayout const& layout, StepSettings const& settings);

 private:
  /// Where settings differ: what and where, by the ranks of the world.
  [[nodiscard]] std::optional<std::string> difference(StepSettings const& settings) const;

  struct Announced {
    Communicator* to;
    Work work;
    char const* what;  ///< there is no more of
  };

  ShardGroups const* groups_ = nullptr;
  std::vector<Announced> announced_;
};

}  // namespace weft
