#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "sharding/block_map.hpp"
#include "sharding/use_order.hpp"

namespace weft {

struct PlannedUnit {
  std::string name;
  std::size_t bytes = 0;  ///< its size once gathered
};

struct GatherPolicy {
  std::size_t capacity = 0;  ///< bytes
  std::size_t prefetch = 1;
  bool reshard_after_forward = true;
};

/// One thing to do. Actions are carried out in the order in which they were decided.
struct GatherAction {
  enum class Kind { gather, release } kind;
  std::size_t unit;
  std::size_t offset;  ///< bytes into the pool: where it goes, or where it was
  Phase phase;         ///< of a gather: the pass it is meant for

  friend bool operator==(GatherAction const&, GatherAction const&) = default;
};

/// Decides when each unit is gathered and where in the pool it goes; moves nothing itself. Its decisions depend on
/// nothing but the calls made, so ranks that make the same calls decide alike. Not thread-safe.
class GatherPlanner {
 public:
  GatherPlanner(std::vector<PlannedUnit> units, GatherPolicy const& policy);

  /// A unit's turn begins: it is gathered, and so are the `prefetch` units expected next. Between turns one more is
  /// gathered. @throws Error{invalid_argument} where units in use leave no room for it.
  void begin(Use const& use);
  /// Its turn ends: it is released unless the policy keeps it or it is needed again soon.
  void end(Use const& use);
  /// Releases all units, because their values change. None may be in use.
  void release_all();
  /// Continues with another policy, between turns: releases all units, then gathers those needed next again.
  void use(GatherPolicy const& policy);
  /// The step is over: releases all units and gathers the next step's first ones.
  void end_step();

  /// What the calls since the last clear() decided.
  [[nodiscard]] std::span<GatherAction const> actions() const noexcept { return actions_; }
  void clear() noexcept { actions_.clear(); }

  [[nodiscard]] bool is_gathered(std::size_t unit) const noexcept { return states_[unit].gathered; }
  [[nodiscard]] std::size_t offset(std::size_t unit) const noexcept { return states_[unit].offset; }
  [[nodiscard]] std::size_t live_bytes() const noexcept { return map_.used(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_; }
  /// Whether a prefetch ever lacked room, so that it had to wait or another unit had to leave.
  [[nodiscard]] bool was_short() const noexcept { return was_short_; }

 private:
  struct State {
    bool gathered = false;
    bool in_use = false;
    std::size_t offset = 0;
  };

  [[nodiscard]] std::size_t uses_ahead() const noexcept;
  void prefetch();
  [[nodiscard]] bool try_place(Use const& use, std::size_t keep_before);
  [[nodiscard]] bool is_wanted_soon(std::size_t unit) const noexcept;
  void release(std::size_t unit);
  [[nodiscard]] std::string units_in_use() const;

  std::vector<PlannedUnit> units_;
  GatherPolicy policy_;
  UseOrder order_;
  BlockMap map_;
  std::vector<State> states_;
  std::vector<GatherAction> actions_;
  std::size_t peak_ = 0;
  bool was_short_ = false;
};

/// The pool size in bytes with which prefetching never lacks room when units are used in the declared order. Pure.
[[nodiscard]] std::size_t capacity_for(std::vector<PlannedUnit> const& units, GatherPolicy const& policy);

}  // namespace weft
