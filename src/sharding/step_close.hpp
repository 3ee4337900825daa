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

/// Announces the end of a FullySharded step on every communicator, behind the step's last call there. A rank that
/// gathered or reduced other units than the others, or that brings other settings, is found out that way. Not
/// thread-safe.
class StepClose {
 public:
  /// Collective, asynchronous. `tag`: the settings' tag, or 0 while they are not final.
  void announce(ShardGroups& groups, Stream const& gathers, Stream const& reductions, std::uint32_t tag);
  /// Blocks until all ranks have announced it. @throws Error{mismatch} naming the unit whose calls differ, or what of
  /// `settings` does.
  void wait(UnitLayout const& layout, StepSettings const& settings);

 private:
  /// What differs in the settings and between which ranks, numbered as in the world; nothing where no difference is
  /// found.
  [[nodiscard]] std::optional<std::string> difference(StepSettings const& settings) const;

  struct Announced {
    Communicator* to;
    Work work;
    char const* what;  ///< what the step has no more of, for errors
  };

  ShardGroups const* groups_ = nullptr;
  std::vector<Announced> announced_;
};

}  // namespace weft
