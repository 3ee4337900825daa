#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/bucket_plan.hpp"

namespace weft {

/// Tracks which tensors were marked ready, in which order, and which buckets are full. Knows nothing of other ranks.
///
/// A step consists of one or more passes (micro-steps). Marks belong to a pass, gradients to the step. Allocates only
/// in its constructor and between steps. Not thread-safe.
class ReadyTracker {
 public:
  explicit ReadyTracker(BucketPlan const& plan) { use(plan); }

  /// Follows another plan of the same tensors: forgets marks, keeps gradients. Only before anything is sent in a step.
  void use(BucketPlan const& plan);

  /// Marks `tensor`, with a gradient or as one that gets none. Returns true when that filled its bucket.
  /// @throws Error{invalid_argument} for a bad index, for a second mark in one pass, and for a gradient of a tensor
  /// that is left out.
  bool mark(std::size_t tensor, bool with_gradient = true);

  /// Buckets wait no longer for `tensors`, in any pass. Between steps only.
  void leave_out(std::vector<std::size_t> const& tensors);
  /// Whether some tensor of `bucket` is not left out.
  [[nodiscard]] bool awaits_any(std::size_t bucket) const noexcept { return sizes_[bucket] != 0; }

  [[nodiscard]] bool is_full(std::size_t bucket) const noexcept { return missing_[bucket] == 0; }
  /// Whether `tensor` was marked in this pass.
  [[nodiscard]] bool is_marked(std::size_t tensor) const noexcept { return marked_[tensor] != 0; }
  /// Whether `tensor` was marked with a gradient in any pass of this step.
  [[nodiscard]] bool has_gradient(std::size_t tensor) const noexcept { return has_gradient_[tensor] != 0; }
  /// The same for all tensors.
  [[nodiscard]] std::span<std::uint8_t const> gradients() const noexcept { return has_gradient_; }
  /// Whether any tensor has a gradient in this step.
  [[nodiscard]] bool any_gradient() const noexcept;
  /// Whether any tensor was marked in this pass.
  [[nodiscard]] bool any_marked() const noexcept { return !order_.empty(); }
  [[nodiscard]] std::size_t bucket_of(std::size_t tensor) const noexcept { return bucket_of_[tensor]; }
  [[nodiscard]] std::size_t tensor_count() const noexcept { return bucket_of_.size(); }
  /// @throws Error{invalid_argument} saying what is allowed; `call` names the caller.
  void check_index(char const* call, std::size_t tensor) const;

  /// This pass's tensors in the order they were marked, then the others in plan order: a permutation.
  [[nodiscard]] std::vector<std::uint64_t> observed_order() const;
  /// Has mark() note the time too, from now on, or no longer.
  void note_times(bool wanted);
  /// While times are noted: seconds from this pass's first mark to each tensor's; of a tensor that was not marked, to
  /// `end`. All 0 when none was.
  [[nodiscard]] std::vector<double> observed_times(std::chrono::steady_clock::time_point end) const;

  /// Forgets the marks and keeps the gradients.
  void end_pass() noexcept;
  /// Forgets both.
  void end_step() noexcept;

 private:
  std::vector<std::size_t> bucket_of_;  ///< by tensor
  std::vector<std::size_t> plan_order_;
  std::vector<std::size_t> sizes_;    ///< tensors that are not left out, by bucket
  std::vector<std::size_t> missing_;  ///< tensors not yet marked in this pass, by bucket
  std::vector<std::uint8_t> marked_;
  std::vector<std::uint8_t> left_out_;
  std::vector<std::uint8_t> has_gradient_;
  std::vector<std::size_t> order_;                            ///< tensors marked in this pass
  std::vector<std::chrono::steady_clock::time_point> times_;  ///< of marks, by tensor; empty where they are not noted
};

}  // namespace weft
