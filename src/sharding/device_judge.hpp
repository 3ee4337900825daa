#pragma once

#include <memory>
#include <vector>

#include "optim/device_norm.hpp"
#include "weft/communicator.hpp"
#include "weft/gradient_policy.hpp"
#include "weft/optimizer.hpp"

namespace weft {

/// Does for shards on a GPU what GradientJudge does on the host: measures them behind their reductions, then has all
/// ranks decide what the step multiplies gradients by, or that it is skipped. All of it is enqueued; the host learns
/// the result only if it asks for norm().
class DeviceJudge {
 public:
  /// Checks that the policy's scaler, if it has one, is on `device`, where parameters are.
  /// @throws Error{invalid_argument} where it is not.
  static void check(GradientPolicy const& policy, Device device);
  /// For `shards` on a GPU, perhaps none; their memory must outlive this. Blocks.
  DeviceJudge(GradientPolicy const& policy, std::vector<BufferView> const& shards, Device device);

  /// Enqueues a pass over shards [first, first + count). Its result replaces that of the last pass over them.
  void look_at(std::size_t first, std::size_t count, Stream const& stream);
  /// Collective: decides from everything that all ranks have looked at. The result is for what comes behind on
  /// `stream`, and its pointers are valid until the next call.
  [[nodiscard]] StepInputs decide(Communicator& communicator, StepInputs const& inputs, Stream const& stream);
  /// The norm that decide() found, of unscaled gradients. Waits for the GPU.
  [[nodiscard]] GradientNorm norm() const { return norm_->read(); }

 private:
  GradientPolicy policy_;
  std::unique_ptr<DeviceNorm> norm_;
};

}  // namespace weft
