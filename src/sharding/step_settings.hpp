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

/// What ranks must bring to a step alike although no collective's arguments show it: options of groups, steps applied,
/// the loss scale, inputs. Their digest is the tag of a collective that a step makes anyway. Where ranks differ, that
/// collective fails before anything moves, and explain() finds out in what they differ. Not thread-safe.
class StepSettings {
 public:
  /// Records the settings as they are now, and of `inputs` what is given. Allocates the first time only.
  void take(PieceOptimizer const& shards, GradScaler const* scaler, StepInputs const& inputs);

  /// The tag of what was taken last; 0 before. Two different settings have the same tag in one case of 2^31.
  [[nodiscard]] std::uint32_t tag() const noexcept { return tag_; }
  /// Whether `tag` is one of these; units' tags are all smaller.
  [[nodiscard]] static bool is_tag(std::uint32_t tag) noexcept { return (tag & kMark) != 0; }
  [[nodiscard]] static std::string name_tag(std::uint32_t tag);
  /// A communicator's error text with these tags in words.
  [[nodiscard]] static std::string name_tags(std::string const& what);

  /// Whether `failure` says that ranks differ in nothing but these tags.
  [[nodiscard]] static bool is_reason_of(Error const& failure);
  /// Collective on a communicator whose call failed for that reason: what differs, with both values; nothing where the
  /// other ranks cannot be asked. `numbers` is as in first_difference().
  [[nodiscard]] std::optional<std::string> difference(Communicator& communicator,
                                                      std::vector<int> const& numbers = {}) const;
  /// The error to throw for `difference`; `who` begins the message.
  [[nodiscard]] static Error error_of(char const* who, std::string const& difference);

  /// Explains `failure` of a call on `communicator` that carried this tag. Collective if ranks differ in nothing but
  /// the tag: @throws Error{mismatch} on every rank, `who` first, naming what differs and both values. Returns in any
  /// other case, and where the other ranks cannot be asked.
  void explain(Error const& failure, Communicator& communicator, char const* who) const;

 private:
  static constexpr std::uint32_t kMark = 0x80000000U;
  static constexpr std::size_t kInputs = 5;  ///< number of StepInputs that are f32

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
