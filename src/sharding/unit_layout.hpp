#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sharding/gather_planner.hpp"
#include "weft/bucket_plan.hpp"
#include "weft/fully_sharded.hpp"

namespace weft {

/// The types of a flat parameter's elements, in each of its uses.
struct FlatTypes {
  DataType parameter = DataType::f32;  ///< gathered
  DataType gradient = DataType::f32;   ///< written by backward
  DataType reduced = DataType::f32;    ///< sent, accumulated, given to the optimizer
};

/// Where everything lies. A unit has one flat parameter for each type that is gathered. In it the unit's tensors lie
/// one after the other, each from a cache line on, padded so that the flat has equal parts of whole lines in each of
/// its types. Immutable; a pure function of its inputs.
class UnitLayout {
 public:
  /// Flats have `parts` equal parts. Only the shapes, names and types of the units are looked at.
  UnitLayout(std::vector<ShardedUnit> const& units, FullyShardedOptions const& options, std::size_t parts);

  [[nodiscard]] std::size_t unit_count() const noexcept { return first_flat_.size() - 1; }
  [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }
  [[nodiscard]] std::string const& name(std::size_t unit) const noexcept { return names_[unit]; }

  /// All flats as buckets, those of a unit next to one another.
  [[nodiscard]] BucketPlan const& plan() const noexcept { return plan_; }
  [[nodiscard]] FlatTypes const& types(std::size_t flat) const noexcept { return types_[flat]; }
  [[nodiscard]] std::size_t count(std::size_t flat) const noexcept { return plan_.buckets[flat].count; }
  [[nodiscard]] std::size_t flat_count() const noexcept { return types_.size(); }
  [[nodiscard]] std::size_t first_flat(std::size_t unit) const noexcept { return first_flat_[unit]; }
  [[nodiscard]] std::size_t last_flat(std::size_t unit) const noexcept { return first_flat_[unit + 1]; }

  struct Place {
    std::size_t unit = 0;
    std::size_t flat = 0;
    std::size_t offset = 0;  ///< elements into the flat
    std::size_t count = 0;
  };
  [[nodiscard]] Place const& place(std::size_t parameter) const noexcept { return parameters_[parameter]; }
  [[nodiscard]] std::size_t first_parameter(std::size_t unit) const noexcept { return first_parameter_[unit]; }
  [[nodiscard]] std::size_t last_parameter(std::size_t unit) const noexcept { return first_parameter_[unit + 1]; }

  /// Bytes of all flats of a unit, as gathered and as backward writes them; then the byte in its unit where a flat
  /// begins.
  [[nodiscard]] std::size_t gathered_bytes(std::size_t unit) const noexcept;
  [[nodiscard]] std::size_t gradient_bytes(std::size_t unit) const noexcept;
  [[nodiscard]] std::size_t gathered_offset(std::size_t flat) const noexcept { return gathered_offsets_[flat]; }
  [[nodiscard]] std::size_t gradient_offset(std::size_t flat) const noexcept { return gradient_offsets_[flat]; }

  [[nodiscard]] std::vector<PlannedUnit> planned() const;

 private:
  void add_flat(std::vector<TensorSpec> const& specs, std::vector<std::size_t> const& tensors, FlatTypes const& types,
                std::size_t parts);

  std::vector<std::string> names_;
  BucketPlan plan_;
  std::vector<FlatTypes> types_;         ///< by flat
  std::vector<std::size_t> first_flat_;  ///< by unit, and the end
  std::vector<Place> parameters_;
  std::vector<std::size_t> first_parameter_;   ///< by unit, and the end
  std::vector<std::size_t> gathered_offsets_;  ///< by flat, bytes into its unit
  std::vector<std::size_t> gradient_offsets_;
};

}  // namespace weft
