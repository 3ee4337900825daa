#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "compute_stream.hpp"
#include "process_group.hpp"
#include "weft/autotuner.hpp"
#include "weft/communicator.hpp"
#include "weft/memory.hpp"
#include "weft/optimizer.hpp"
#include "weft/sharded_optimizer.hpp"

namespace weft::torch_backend {

/// A tensor over a buffer, with the layout of `like` and the buffer's type. It keeps `owner` alive.
[[nodiscard]] at::Tensor tensor_over(BufferView const& memory, at::Tensor const& like, std::shared_ptr<void> owner);

/// Moves a tensor that tensor_over() has made: from now on it, and all tensors that share its storage, use this memory.
void move_tensor(at::Tensor const& tensor, BufferView const& memory, std::shared_ptr<void> owner);

/// The memory of dense tensors. @throws as dense_view().
[[nodiscard]] std::vector<BufferView> views_of(std::vector<at::Tensor> const& tensors);

/// Calls `body`, and throws a weft::Error as torch's equivalent.
template <typename Body>
auto as_torch(Body&& body) {
  try {
    return body();
  } catch (Error const& error) {
    throw_as_torch(error);
  }
}

/// Parameters with the same optimizer options.
struct TensorGroup {
  OptimizerOptions options;
  std::vector<at::Tensor> parameters;
};

[[nodiscard]] std::vector<at::Tensor> tensors_of(std::vector<TensorGroup> const& groups);

/// Keeps the memory of parameters on a GPU until everything enqueued so far on the calling thread's current stream has
/// run.
void record_uses(std::vector<TensorGroup> const& groups);

/// The base of models with a sharded optimizer: their own communicator, the account to which all their allocations are
/// charged, and access to optimizer states by name. Not thread-safe; Python's lock is not needed. On a GPU, calls are
/// in order with the calling thread's current stream, and only functions that return or set numbers or states wait for
/// the GPU. Values to set states to may be on the CPU or the GPU; returned states are on the CPU.
class ShardedModel : public std::enable_shared_from_this<ShardedModel> {
 public:
  ShardedModel(ShardedModel const&) = delete;
  ShardedModel& operator=(ShardedModel const&) = delete;
  virtual ~ShardedModel() = default;

  virtual void step() = 0;
  void set_options(std::size_t group, OptimizerOptions const& options);
  /// The norm of the last step's gradients; infinity if they were not finite.
  [[nodiscard]] double norm();
  [[nodiscard]] std::int64_t step_count() { return sharded().step_count(); }
  void set_step_count(std::int64_t steps) { sharded().set_step_count(steps); }
  /// Collective: a parameter's whole state, f32, on every rank; "master" is the parameter's f32 original.
  [[nodiscard]] at::Tensor state(std::size_t index, std::string const& name);
  /// Collective for "master", which also sets the parameter.
  void set_state(std::size_t index, std::string const& name, at::Tensor const& values);
  /// The state of this rank's part, sharded().shard(index), in the order of memory. After setting "master", the f32
  /// original, call share().
  [[nodiscard]] at::Tensor state_shard(std::size_t index, std::string const& name);
  void set_state_shard(std::size_t index, std::string const& name, at::Tensor const& values);
  /// Collective: sets parameters to the values of their f32 originals.
  void share();
  [[nodiscard]] std::size_t state_bytes() { return sharded().state_bytes(); }

  [[nodiscard]] virtual ShardedOptimizer& sharded() = 0;
  /// The settings that tuning may try during training.
  [[nodiscard]] virtual TuningSpace tuning_space() = 0;
  [[nodiscard]] Communicator& communicator() noexcept { return communicator_; }
  /// Tensors with the parameters' layouts, without memory.
  [[nodiscard]] std::vector<at::Tensor> const& layouts() const noexcept { return layouts_; }

 protected:
  [[nodiscard]] ComputeStream& compute() noexcept { return compute_; }
  /// Collective over the group. Keeps the parameters' layouts, not their memory.
  ShardedModel(ProcessGroupWeft& group, std::vector<at::Tensor> const& parameters, MemoryAccount account);
  /// Calls `body`; what it allocates is charged to the account.
  template <typename Body>
  auto charged(Body&& body) {
    MemoryAccount::Binding const bound(account_);
    return as_torch(std::forward<Body>(body));
  }

 private:
  [[nodiscard]] std::size_t which(std::size_t index, std::string const& name);

  MemoryAccount account_;
  ComputeStream compute_;
  std::vector<at::Tensor> layouts_;
  Communicator communicator_;
};

}  // namespace weft::torch_backend
