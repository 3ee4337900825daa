#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <weft/communicator.hpp>
#include <weft/data_parallel.hpp>

namespace train_gpt {

/// One way to average gradients over ranks, with weft::DataParallel's interface.
class Synchroniser {
 public:
  virtual ~Synchroniser() = default;

  [[nodiscard]] virtual weft::BufferView gradient(std::size_t index) const = 0;
  virtual void mark_ready(std::size_t index) = 0;
  virtual void finish_launching() {}
  virtual void wait(std::size_t index) { static_cast<void>(index); }
  virtual void finish() = 0;
  /// What was communicated in the last step, in launch order.
  [[nodiscard]] virtual std::span<weft::BucketTiming const> timings() const = 0;
};

/// weft::DataParallel on a communicator of its own.
[[nodiscard]] std::unique_ptr<Synchroniser> weft_synchroniser(weft::Communicator communicator,
                                                              std::vector<weft::BufferView> parameters,
                                                              weft::BucketerOptions const& options);

/// Sends nothing: gradients stay this rank's. The compute baseline.
[[nodiscard]] std::unique_ptr<Synchroniser> no_synchroniser(std::span<weft::BufferView const> parameters);

/// Empty when mpi_synchroniser() can be used, else why not.
[[nodiscard]] std::string why_no_mpi();

/// One blocking MPI_Allreduce per tensor, in the order gradients become ready, as a trainer without a library would do
/// it.
[[nodiscard]] std::unique_ptr<Synchroniser> mpi_synchroniser(std::span<weft::BufferView const> parameters);

/// Private host memory for a gradient of each parameter.
[[nodiscard]] std::vector<weft::Buffer> gradients_like(std::span<weft::BufferView const> parameters);

}  // namespace train_gpt
