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

/// A model whose parameters are sharded too: weft::FullySharded on a communicator of its own. As ShardedModel
/// otherwise.
///
/// A parameter is one tensor for good, with a storage of its own: while its unit is in use the storage has the gathered
/// elements, wherever they lie this time, else no memory. So what autograd saved of a parameter in forward, views too,
/// is there again in backward.
///
/// On a GPU what the calling thread's current stream is given after before_…() comes after the unit has arrived, and a
/// unit that is given up, or a gradient that is taken, follows what it was given so far.
class ShardedUnits : public ShardedModel {
 public:
  struct Unit {
    std::string name;
    std::vector<TensorGroup> groups;
  };
  /// Collective: rank 0's values. Memory of the tensors is not needed any more.
  ShardedUnits(ProcessGroupWeft& group, std::vector<Unit> const& units, FullyShardedOptions const& options,
               MemoryAccount const& account);

  [[nodiscard]] at::Tensor parameter(std::size_t index) const { return tensors_[index]; }
  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  /// `unused`: parameters without gradient in this pass.
  void after_backward(std::size_t unit, std::vector<std::size_t> const& unused);
  /// Copies what backward has made of parameter `index` to where it is reduced, or adds it to earlier passes'.
  void take_gradient(std::size_t index, at::Tensor const& gradient);

  /// Outside of turns: the parameter's tensor has this memory from now on, or, without any, none again.
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
  std::vector<std::size_t> first_;  ///< parameter of each unit, and one past the last
};

/// A tensor laid out as `like` that has no memory: whoever reads or writes it gets `message` as torch's RuntimeError.
[[nodiscard]] at::Tensor absent_tensor(at::Tensor const& like, std::string const& message);

}  // namespace weft::torch_backend
