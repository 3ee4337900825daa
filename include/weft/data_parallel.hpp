#pragma once

#include <utility>
#include <vector>

#include "weft/bucketer.hpp"

namespace weft {

/// Replicates a model: parameters are broadcast from rank 0 once, gradients are averaged over the ranks while backward
/// goes on.
///
///   weft::DataParallel ddp(world, parameters);
///   …backward writes ddp.gradient(i), then ddp.mark_ready(i)…
///   ddp.finish();                       // averaged gradients are in place
///
/// Not thread-safe. `parameters` must outlive it; they may be private or symmetric memory.
class DataParallel {
 public:
  /// Collective: checks that all ranks pass the same shapes and broadcasts every parameter from rank 0.
  /// @throws Error{mismatch} on every rank, naming the first rank and parameter that differ from rank 0's;
  /// Error{invalid_argument} for a parameter without memory.
  DataParallel(Communicator& communicator, std::vector<BufferView> parameters, BucketerOptions const& options = {});

  [[nodiscard]] BufferView parameter(std::size_t index) const { return parameters_.at(index); }
  [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }
  /// See Bucketer: the view moves when generation() grows.
  [[nodiscard]] BufferView gradient(std::size_t index) const { return bucketer_.gradient(index); }
  [[nodiscard]] std::size_t generation() const noexcept { return bucketer_.generation(); }

  void mark_ready(std::size_t index) { bucketer_.mark_ready(index); }
  void finish() { bucketer_.finish(); }

  /// Ends a step piece by piece, so that the optimizer works while the last buckets travel: finish_launching(), then
  /// for each parameter wait(index) and use its gradient, then finish().
  void finish_launching() { bucketer_.finish_launching(); }
  void wait(std::size_t index) { bucketer_.wait(index); }

  /// Runs `body` (one forward + backward pass, or several that each end with finish()) without communication: gradients
  /// accumulate locally until the next finish() outside. Ends the pass also when `body` throws. May be nested.
  template <typename Body>
  void no_sync(Body&& body) {
    struct Restore {
      Bucketer& bucketer;
      bool sync;
      ~Restore() { bucketer.set_sync(sync); }  // ends the pass; does not throw when communication was off
    } const restore{bucketer_, bucketer_.sync()};
    bucketer_.set_sync(false);
    std::forward<Body>(body)();
  }

  [[nodiscard]] Bucketer& bucketer() noexcept { return bucketer_; }

 private:
  std::vector<BufferView> parameters_;
  Bucketer bucketer_;
};

}  // namespace weft
