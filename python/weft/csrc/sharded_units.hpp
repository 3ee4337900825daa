#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "process_group.hpp"
#include "sharded_model.hpp"
#include "weft/fully_sharded.hpp"

namespace weft::torch_backend {

/// A model whose parameters are also sharded: weft::FullySharded with its own communicator. Otherwise as ShardedModel.
///
/// A parameter is always the same tensor, with its own storage. While its unit is in use, the storage has the gathered
/// elements, wherever they are this time; otherwise it has no memory. So what autograd saved of a parameter in forward,
/// including views, is valid again in backward.
///
/// On a GPU, what is enqueued on the calling thread's current stream after before_…() runs after the unit has arrived.
/// A unit is given up, and a gradient taken, after what has been enqueued on that stream so far.
class ShardedUnits : public ShardedModel {
 public:
  struct Unit {
    std::string name;
    std::vector<TensorGroup> groups;
  };
  /// Collective: all ranks get rank 0's values. The tensors' memory is not needed afterwards.
  ShardedUnits(ProcessGroupWeft& group, std::vector<Unit> const& units, FullyShardedOptions const& options,
               MemoryAccount const& account);

  [[nodiscard]] at::Tensor parameter(std::size_t index) const { return tensors_[index]; }
  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  /// `unused`: parameters without a gradient in this pass.
  void after_backward(std::size_t unit, std::vector<std::size_t> const& unused);
  /// Copies the gradient of parameter `index` to where it is reduced, or adds it to those of earlier passes.
  void take_gradient(std::size_t index, at::Tensor const& gradient);

  /// While the unit is not in use: lend() gives the parameter's tensor this memory, take_back() takes it away again.
  void lend(std::size_t index, at::Tensor const& whole);
  void take_back(std::size_t index);

  void set_sync(bool sync);
  void step() override;
  [[nodiscard]] FullyShardedMemory memory() const { return model_.memory(); }
  [[nodiscard]] std::size_t peak_gathered_bytes() const { return model_.peak_gathered_bytes(); }
  [[nodiscard]] std::size_t gather_count() const { return model_.gathers().size(); }
  [[nodiscard]] ShardedOptimizer& sharded() override { return model_; }
  [[nodiscard]] TuningSpace tuning_space() override { return weft::tuning_space(model_); }

 private:
  void place(std::size_t unit);
  void remove(std::size_t unit);

  FullySharded model_;
  std::vector<at::Tensor> tensors_;
  std::vector<c10::Storage> storages_;
  std::vector<std::size_t> first_;  ///< the first parameter of each unit, and one past the last parameter
};

/// A tensor with the layout of `like` and no memory: reading or writing it raises torch's RuntimeError with `message`.
[[nodiscard]] at::Tensor absent_tensor(at::Tensor const& like, std::string const& message);

}  // namespace weft::torch_backend
