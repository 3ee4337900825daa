#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/weft.hpp"

namespace weft::perf {

/// What every side trains: bf16 parameters with f32 originals, f32 gradients of a scaled loss, with AdamW and clipping.
struct Workload {
  std::size_t tensors = 100;
  std::size_t tensor_count = 1'000'000;  ///< elements of each: a multiple of 32 × ranks
  std::size_t bucket_mib = 25;           ///< the library's own cap
  float loss_scale = 1024;
  double max_norm = 1;
  AdamWOptions adamw{.lr = 1e-3};

  [[nodiscard]] std::size_t count() const noexcept { return tensors * tensor_count; }
};

/// One way to do the part of a step between backward and the next forward.
class Side {
 public:
  Side() = default;
  Side(Side const&) = delete;
  Side& operator=(Side const&) = delete;
  virtual ~Side() = default;
  /// Not timed: writes all gradients of this rank, as backward would.
  void write_gradients(int rank, std::size_t step);
  /// Collective. Goes from this rank's gradients to updated parameters on every rank.
  virtual void phase() = 0;
  /// The parts of the last phase() and their seconds; empty if the parts overlap.
  [[nodiscard]] std::vector<std::pair<std::string, double>> const& parts() const noexcept { return parts_; }
  /// Not timed: reads all parameters of this rank, as forward would.
  [[nodiscard]] double read_parameters() const;
  /// Collective: the f32 originals of all parameters.
  [[nodiscard]] virtual std::vector<float> masters() = 0;

 protected:
  [[nodiscard]] virtual std::vector<BufferView> gradients() const = 0;
  [[nodiscard]] virtual std::vector<BufferView> parameters() const = 0;

  template <typename Pass>
  void timed(char const* name, Pass&& pass) {
    auto const start = std::chrono::steady_clock::now();
    pass();
    parts_.emplace_back(name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }

  std::vector<std::pair<std::string, double>> parts_;
};

/// Parameter `index` of the model before the first step.
[[nodiscard]] float initial_value(std::size_t index);

/// weft::ZeroOptimizer, stage 1.
[[nodiscard]] std::unique_ptr<Side> fused_side(Communicator& world, Workload const& workload);

/// The model of the two other sides. They may share one and use it in turn, so that a run needs less memory.
class FlatModel {
 public:
  FlatModel(Communicator& world, Workload const& workload);

  Buffer gradients;   ///< f32, symmetric
  Buffer parameters;  ///< bf16, symmetric
  Buffer master;      ///< f32, of this rank's shard
  [[nodiscard]] BufferView gradient_shard() const noexcept { return shard(gradients); }
  [[nodiscard]] BufferView parameter_shard() const noexcept { return shard(parameters); }
  [[nodiscard]] std::vector<float> whole_master(Communicator& world) const;

 private:
  [[nodiscard]] BufferView shard(Buffer const& whole) const noexcept {
    return whole.view().slice(rank_ * master.count(), master.count());
  }
  std::size_t rank_;
};

/// The same phase with separate Weft functions, each of which makes its own pass over the shard.
[[nodiscard]] std::unique_ptr<Side> passes_side(Communicator& world, Workload const& workload,
                                                std::shared_ptr<FlatModel> model);

/// MPI_Reduce_scatter_block, AdamW element by element without SIMD, MPI_Allgather. Does not look for overflow, clip, or
/// set gradients to zero. Null if mpirun did not start this program, or if it was built without MPI.
[[nodiscard]] std::unique_ptr<Side> mpi_side(Communicator& world, Workload const& workload,
                                             std::shared_ptr<FlatModel> model);

}  // namespace weft::perf
