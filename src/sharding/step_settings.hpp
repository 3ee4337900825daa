#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sharding/facts.hpp"
#include "sharding/piece_optimizer.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"
#include "weft/grad_scaler.hpp"

namespace weft {

/// What ranks must bring to a step alike, though no collective's arguments show it: options of groups, steps applied,
/// the loss scale, inputs. Their digest is the tag of a collective that a step makes anyway: where ranks differ it
/// fails before anything moves, and explain() finds out in what. Not thread-safe.
class StepSettings {
 public:
  /// As they are now, `inputs` as far as they are given. Allocates the first time only.
  void take(PieceOptimizer const& shards, GradScaler const* scaler, StepInputs const& inputs);

  /// Of what was taken last, 0 before. Other settings have the same in one case of 2^31.
  [[nodiscard]] std::uint32_t tag() const noexcept { return tag_; }
  /// Units' tags are below all of these.
  [[nodiscard]] static bool is_tag(std::uint32_t tag) noexcept { return (tag & kMark) != 0; }
  [[nodiscard]] static std::string name_tag(std::uint32_t tag);
  /// A communicator's error text with such tags in words.
  [[nodiscard]] static std::string name_tags(std::string const& what);

  /// `failure` says that ranks differ in nothing but such tags.
  [[nodiscard]] static bool is_reason_of(Error const& failure);
  /// Collective on a communicator whose call failed so: what differs and both values, or none where the other ranks
  /// cannot be asked. `numbers` as first_difference() has them.
  [[nodiscard]] std::optional<std::string> difference(Communicator& communicator,
                                                      std::vector<int> const& numbers = {}) const;
  /// What to throw about it, `who` first.
  [[nodiscard]] static Error error_of(char const* who, std::string const& difference);

  /// Where `failure`, of a call on `communicator` whose tag this was, says that ranks differ in nothing but the tag.
  /// Collective in that case: @throws Error{mismatch} on every rank, `who` first, naming what differs and both values.
  /// Returns in any other, and where the other ranks cannot be asked.
  void explain(Error const& failure, Communicator& communicator, char const* who) const;

 private:
  static constexpr std::uint32_t kMark = 0x80000000U;
  static constexpr std::size_t kInputs = 5;  ///< of StepInputs, those that are f32

  [[nodiscard]] std::uint32_t digest() const noexcept;
  [[nodiscard]] Facts facts() const;

  std::vector<OptimizerOptions> options_;  ///< by group
  std::int64_t steps_ = 0;
  std::optional<GradScaler::State> scale_;
  std::optional<std::int64_t> step_;  ///< of the inputs
  std::array<std::optional<float>, kInputs> inputs_;
  std::uint32_t tag_ = 0;
};

}  // namespace weft
