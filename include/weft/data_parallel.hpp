#pragma once

#include <span>
#include <vector>

#include "weft/bucketer.hpp"

namespace weft {

/// Replicates a model: parameters are broadcast from rank 0 once, gradients are averaged over the ranks while backward goes on.
///
///   weft::DataParallel ddp(world, parameters);
///   …backward writes ddp.gradient(i), then ddp.mark_ready(i)…
///   ddp.finish();                       // averaged gradients are in place
///
/// Not thread-safe. `parameters` must outlive it; they may be private or symmetric memory.
class DataParallel {
 public:
  /// Collective: broadcasts every parameter from rank 0. @throws Error{mismatch} when ranks pass different shapes.
  DataParallel(Communicator& communicator, std::vector<BufferView> parameters, BucketerOptions const& options = {});

  [[nodiscard]] BufferView parameter(std::size_t index) const { return parameters_.at(index); }
  [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }
  [[nodiscard]] BufferView gradient(std::size_t index) const { return bucketer_.gradient(index); }
  [[nodiscard]] std::size_t generation() const noexcept { return bucketer_.generation(); }

  void mark_ready(std::size_t index) { bucketer_.mark_ready(index); }
  void finish() { bucketer_.finish(); }

  /// Runs `body` (forward + backward passes) without communication: gradients accumulate locally.
  template <typename Body>
  void no_sync(Body&& body) {
    bucketer_.set_sync(false);
    struct Restore {
      Bucketer& bucketer;
      ~Restore() { bucketer.set_sync(true); }
    } restore{bucketer_};
    body();
    bucketer_.finish();
  }

  [[nodiscard]] Bucketer& bucketer() noexcept { return bucketer_; }

 private:
  std::vector<BufferView> parameters_;
  Bucketer bucketer_;
};

}  // namespace weft
