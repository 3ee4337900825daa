#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/gradient_presence.hpp"

namespace weft {

/// Keeps the contents of tensors that this rank sends as zeros, for the case that no rank has a gradient of them. Not
/// thread-safe.
class UnusedTensors {
 public:
  /// `presence` must outlive it.
  UnusedTensors(GradientPresence const& presence, std::size_t tensors);

  /// This rank has no gradient of `tensor`: zeroes it, after putting its contents aside if they may be wanted again.
  void send_zeros(BucketStorage const& storage, std::size_t tensor);
  /// Whether settle(tensor) has something to do, for which it calls has_gradient().
  [[nodiscard]] bool is_aside(std::size_t tensor) const noexcept { return is_aside_[tensor] != 0; }
  /// For `tensor`, or all tensors, once its bucket has arrived: puts the contents back where no rank had a gradient.
  void settle(BucketStorage const& storage, std::size_t tensor);
  void settle_all(BucketStorage const& storage);

 private:
  GradientPresence const& presence_;
  std::vector<Buffer> aside_;           ///< by tensor; memory is kept from step to step
  std::vector<std::uint8_t> is_aside_;  ///< by tensor
  std::vector<std::size_t> zeroed_;     ///< tensors that were put aside in this step
};

}  // namespace weft
