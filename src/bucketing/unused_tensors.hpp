#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/ready_tracker.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Which tensors have a gradient on any rank, and what becomes of those that have none. In a step: send_zeros() as
/// buckets leave, agree(), settle(), perhaps learn().
class UnusedTensors {
 public:
  UnusedTensors(UnusedGradients mode, std::size_t tensors);

  /// This rank has no gradient of `tensor`: zeroes it, keeping the contents aside if they may be wanted again.
  void send_zeros(BucketStorage const& storage, std::size_t tensor);

  /// Collective, asynchronous, behind all buckets: finds out what ranks have, unless it is known.
  void agree(Communicator& communicator, Stream const& stream, ReadyTracker const& tracker);
  /// `tensor`, or all, once its bucket has arrived: gives it its contents back where no rank had a gradient.
  void settle(BucketStorage const& storage, std::size_t tensor);
  void settle_all(BucketStorage const& storage);
  /// Waits until nothing of this is under way, whatever failed.
  void drain() const noexcept;

  /// What this step found holds from now on, if the mode says so: returns the tensors that this rank never has.
  [[nodiscard]] std::vector<std::size_t> learn();
  /// The first tensor that has no gradient in this step against what was learnt.
  [[nodiscard]] std::optional<std::size_t> missing(ReadyTracker const& tracker) const;

  [[nodiscard]] bool has_gradient(std::size_t tensor) const noexcept {
    return mode_ == UnusedGradients::zero || here_[tensor] != 0 || anywhere_[tensor] != 0;
  }

 private:
  UnusedGradients mode_;
  bool learnt_ = false;
  std::vector<std::uint8_t> here_;
  std::vector<std::uint8_t> anywhere_;
  Work agreement_;
  std::vector<std::vector<std::byte>> aside_;  ///< by tensor; memory is kept from step to step
  std::vector<std::size_t> zeroed_;            ///< tensors aside in this step
};

}  // namespace weft
