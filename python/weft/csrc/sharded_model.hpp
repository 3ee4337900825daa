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

/// Elements of a buffer as a tensor laid out as `like`, of the buffer's type. It keeps `owner`.
[[nodiscard]] at::Tensor tensor_over(BufferView const& memory, at::Tensor const& like, std::shared_ptr<void> owner);

/// The same of a tensor that tensor_over() has made: from now on it, and all that share its storage, have this memory.
void move_tensor(at::Tensor const& tensor, BufferView const& memory, std::shared_ptr<void> owner);

/// Memory of dense tensors. @throws as dense_view().
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

/// Parameters that are optimized alike.
struct TensorGroup {
  OptimizerOptions options;
  std::vector<at::Tensor> parameters;
};

[[nodiscard]] std::vector<at::Tensor> tensors_of(std::vector<TensorGroup> const& groups);

/// Memory of parameters on a GPU is kept until what the calling thread's current stream was given so far has run.
void record_uses(std::vector<TensorGroup> const& groups);

/// What the models whose optimizer is sharded have in common: a communicator of their own, an account that all they
/// allocate is charged to, optimizer states by their names. Not thread-safe; the interpreter's lock is not needed. On a
/// GPU calls are in order with the calling thread's current stream; only what returns numbers or states, or sets them,
/// waits for the GPU. States and what they are set to may be on either; those returned are on the CPU.
class ShardedModel : public std::enable_shared_from_this<ShardedModel> {
 public:
  ShardedModel(ShardedModel const&) = delete;
  ShardedModel& operator=(ShardedModel const&) = delete;
  virtual ~ShardedModel() = default;

  virtual void step() = 0;
  void set_options(std::size_t group, OptimizerOptions const& options);
  /// Of the last step's gradients; infinity where they were not finite.
  [[nodiscard]] double norm();
  [[nodiscard]] std::int64_t step_count() { return sharded().step_count(); }
  void set_step_count(std::int64_t steps) { sharded().set_step_count(steps); }
  /// Collective: whole states, f32, on every rank; "master" is the f32 original.
  [[nodiscard]] at::Tensor state(std::size_t index, std::string const& name);
  /// Collective for "master", which sets the parameter too.
  void set_state(std::size_t index, std::string const& name, at::Tensor const& values);
  /// Of this rank's part, sharded().shard(index), in the order of memory; "master" is the f32 original, after which
  /// share() must follow.
  [[nodiscard]] at::Tensor state_shard(std::size_t index, std::string const& name);
  void set_state_shard(std::size_t index, std::string const& name, at::Tensor const& values);
  /// Collective: parameters have the values of their originals.
  void share();
  [[nodiscard]] std::size_t state_bytes() { return sharded().state_bytes(); }

  [[nodiscard]] virtual ShardedOptimizer& sharded() = 0;
  /// What may be tried in training.
  [[nodiscard]] virtual TuningSpace tuning_space() = 0;
  [[nodiscard]] Communicator& communicator() noexcept { return communicator_; }
  /// Laid out as the parameters, without memory.
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
