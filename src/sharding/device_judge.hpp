#pragma once

#include <memory>
#include <vector>

#include "optim/device_norm.hpp"
#include "weft/communicator.hpp"
#include "weft/gradient_policy.hpp"
#include "weft/optimizer.hpp"

namespace weft {

/// What a GradientJudge does, of shards on a GPU: looks at them behind their reductions, then has all ranks decide what
/// the step multiplies them by, or that it is skipped. All of it is enqueued; the host hears nothing unless it asks.
class DeviceJudge {
 public:
  /// `scaler`, if the policy has one, is on `device`. @throws Error{invalid_argument} where it is not.
  static void check(GradientPolicy const& policy, Device device);
  /// Of `shards`, perhaps none, on a GPU, which outlive it. Blocks.
  DeviceJudge(GradientPolicy const& policy, std::vector<BufferView> const& shards, Device device);

  /// Enqueues a pass over shards [first, first + count), which counts instead of the last one over them.
  void look_at(std::size_t first, std::size_t count, Stream const& stream);
  /// Collective: by everything that was looked at, on all ranks. The result is for what comes behind `stream`, and its
  /// pointers are good until the next call.
  [[nodiscard]] StepInputs decide(Communicator& communicator, StepInputs const& inputs, Stream const& stream);
  /// What decide() found, unscaled. Waits for the GPU.
  [[nodiscard]] GradientNorm norm() const { return norm_->read(); }

 private:
  GradientPolicy policy_;
  std::unique_ptr<DeviceNorm> norm_;
};

}  // namespace weft
