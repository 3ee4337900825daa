#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "compute_stream.hpp"
#include "process_group.hpp"
#include "sharded_model.hpp"
#include "weft/autotuner.hpp"
#include "weft/communicator.hpp"
#include "weft/data_parallel.hpp"
#include "weft/memory.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::torch_backend {

/// The replicas of a model, whose gradients lie in the library's buckets: weft::DataParallel with its own communicator.
/// The memory under views lives as long as one of them, unless buckets move: once generation() has grown, call follow()
/// before touching a view. Not thread-safe; Python's lock is not needed.
///
/// On a GPU all parameters are on the same one, and calls are in order with the calling thread's current stream: a
/// gradient is sent after what was enqueued there before mark_ready(), and what is enqueued there after finish() runs
/// after the averages are done. The host never waits for the GPU.
class Replicas : public std::enable_shared_from_this<Replicas> {
 public:
  struct Settings {
    std::size_t first_bytes;
    std::size_t bytes;
    bool find_unused;
    bool rebuild;  ///< order buckets by when the first step's gradients came; then they move
  };
  /// Collective over the group: broadcasts rank 0's parameters, dense tensors, in the order in which backward is
  /// expected to finish them, last first. What it takes, and what the parameters lie in, is charged to the account.
  Replicas(ProcessGroupWeft& group, std::vector<at::Tensor> parameters, Settings const& settings,
           MemoryAccount const& account);

  [[nodiscard]] at::Tensor gradient(std::size_t index);
  [[nodiscard]] std::size_t generation() const { return model_->generation(); }
  /// Moves the tensors that gradient() has returned, in order, to where gradients are now, along with all tensors that
  /// share their memory.
  void follow(std::vector<at::Tensor> const& gradients);
  [[nodiscard]] bool has_gradient(std::size_t index) const { return model_->has_gradient(index); }
  void mark_ready(std::size_t index);
  void finish();
  /// On the CPU, instead of finish() alone: finish_launching(), then wait() for some gradients, then finish().
  void finish_launching();
  void wait(std::size_t index);
  /// The tensors of each bucket; buckets are in the order in which they are sent.
  [[nodiscard]] std::vector<std::vector<std::size_t>> plan() const;
  void set_sync(bool sync);
  /// Bytes of all buckets.
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] Communicator& communicator() { return *communicator_; }
  [[nodiscard]] TuningSpace tuning_space() { return weft::tuning_space(*model_); }

 private:
  std::vector<at::Tensor> parameters_;
  ComputeStream compute_;
  MemoryCharge parameter_bytes_;
  std::optional<Communicator> communicator_;
  std::optional<DataParallel> model_;
};

/// A model whose optimizer is sharded: weft::ZeroOptimizer with its own communicator, and with buckets that also hold
/// the parameters. Otherwise as Replicas.
class ShardedReplicas : public ShardedModel {
 public:
  struct Settings {
    int stage;
    std::size_t first_bytes;
    std::size_t bytes;
    bool find_unused;
    bool master_weights;
    double max_norm;     ///< 0: no clipping
    GradScaler* scaler;  ///< may be null
  };
  ShardedReplicas(ProcessGroupWeft& group, std::vector<TensorGroup> const& groups, Settings const& settings,
                  MemoryAccount const& account);

  [[nodiscard]] at::Tensor parameter(std::size_t index);
  /// Not for stage 2, see take_gradient().
  [[nodiscard]] at::Tensor gradient(std::size_t index);
  /// For stage 2, where a bucket has memory only from its first gradient until it is reduced: copies the gradient of
  /// parameter `index` there, or adds it to what earlier, unsent passes have left.
  void take_gradient(std::size_t index, at::Tensor const& gradient, bool add);
  [[nodiscard]] std::size_t generation() const { return zero_.generation(); }
  /// As Replicas::follow(), for the tensors that parameter() and, if there are gradients, gradient() have returned.
  void follow(std::vector<at::Tensor> const& parameters, std::vector<at::Tensor> const& gradients);
  void mark_ready(std::size_t index);
  /// Ends a pass that only accumulates the gradients of the parameters in `ready`.
  void accumulate(std::vector<std::size_t> const& ready);
  void step() override;
  void wait_parameter(std::size_t index);
  void wait_parameters();
  [[nodiscard]] ShardedOptimizer& sharded() override { return zero_; }
  [[nodiscard]] TuningSpace tuning_space() override { return weft::tuning_space(zero_); }

 private:
  ZeroOptimizer zero_;
};

}  // namespace weft::torch_backend
