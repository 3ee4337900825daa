#pragma once

#include <cstddef>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/gradient_presence.hpp"

namespace weft {

/// Keeps the contents of tensors that are sent as zeros and that perhaps no rank has a gradient of. Not thread-safe.
class UnusedTensors {
 public:
  /// `presence` must outlive it.
  UnusedTensors(GradientPresence const& presence, std::size_t tensors);

  /// This rank has no gradient of `tensor`: zeroes it, having put its contents aside if they may be wanted again.
  void send_zeros(BucketStorage const& storage, std::size_t tensor);
  /// `tensor`, or all, once its bucket has arrived: gives it its contents back where no rank had a gradient.
  void settle(BucketStorage const& storage, std::size_t tensor);
  void settle_all(BucketStorage const& storage);

 private:
  GradientPresence const& presence_;
  std::vector<Buffer> aside_;        ///< by tensor; memory is kept from step to step
  std::vector<std::size_t> zeroed_;  ///< tensors aside in this step
};

}  // namespace weft
