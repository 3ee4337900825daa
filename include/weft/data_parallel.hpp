#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "weft/bucketer.hpp"
#include "weft/optimizer.hpp"

namespace weft {

/// Replicates a model: parameters are broadcast from rank 0 once, gradients are averaged over the ranks while backward
/// goes on.
///
///   weft::DataParallel ddp(world, parameters);
///   …backward writes ddp.gradient(i), then ddp.mark_ready(i)…
///   ddp.finish();                       // averaged gradients are in place
///
/// Not thread-safe. `parameters` must outlive it; they may be private or symmetric memory, or on a GPU, where gradients
/// then are too and no step waits for it: see BucketerOptions::device, which follows from them, and compute.
class DataParallel {
 public:
  /// Collective: checks that all ranks pass the same shapes and broadcasts every parameter from rank 0.
  /// @throws Error{mismatch} on every rank, naming the first rank and parameter that differ from rank 0's;
  /// before anything is sent Error{invalid_argument} for a parameter without memory, for two that share some, and for
  /// options that shard results.
  DataParallel(Communicator& communicator, std::vector<BufferView> parameters, BucketerOptions const& options = {});
  /// The parameters of all groups, counted as Optimizer counts them: one's gradient(i) is for the other's update(i).
  DataParallel(Communicator& communicator, std::vector<ParameterGroup> const& groups,
               BucketerOptions const& options = {});

  /// @throws Error{invalid_argument} for a bad index, as everything that takes one.
  [[nodiscard]] BufferView parameter(std::size_t index) const;
  [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }
  /// See Bucketer: the view moves when generation() grows.
  [[nodiscard]] BufferView gradient(std::size_t index) const { return bucketer_.gradient(index); }
  [[nodiscard]] std::size_t generation() const noexcept { return bucketer_.generation(); }

  void mark_ready(std::size_t index) { bucketer_.mark_ready(index); }
  void mark_unused(std::size_t index) { bucketer_.mark_unused(index); }
  /// False: no rank had a gradient of it in the last step, and `gradient(index)` is what it was (see UnusedGradients).
  [[nodiscard]] bool has_gradient(std::size_t index) const { return bucketer_.has_gradient(index); }
  void finish() { bucketer_.finish(); }

  /// finish() and an update of every parameter that has_gradient(), each as soon as its own gradient is there while
  /// later ones travel. `optimizer` has the same parameters in the same order. For inputs that do not depend on this
  /// step's gradients. A micro-step under no_sync() updates nothing.
  void finish_and_update(Optimizer& optimizer, StepInputs const& inputs = {});

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

  /// Ranks with different numbers of steps. Collective: `steps` makes all of this rank's, each with finish(); then this
  /// rank takes part in the steps of those that have more, contributing zeros, until all are through. After each such
  /// step `shadowed` is called, with the gradients that the others have: an optimizer that steps there too keeps this
  /// rank equal to them, states and all. Without it, parameters of the rank that made most steps are broadcast at the
  /// end, and optimizer states of the others are behind. Micro-steps under no_sync() may differ between ranks too;
  /// what they left unsent goes with the first step shadowed.
  /// @throws what `steps` and `shadowed` throw; Error{mismatch} on every rank under throw_on_early_termination.
  void join(JoinOptions const& options, std::function<void()> const& steps, std::function<void()> const& shadowed = {});

  [[nodiscard]] Bucketer& bucketer() noexcept { return bucketer_; }
  [[nodiscard]] Bucketer const& bucketer() const noexcept { return bucketer_; }

 private:
  void broadcast_parameters(int root);
  void level(std::size_t own_steps);

  Communicator* communicator_;
  std::vector<BufferView> parameters_;
  Bucketer bucketer_;
  std::optional<Stream> compute_;  ///< where parameters are used, on a GPU
};

}  // namespace weft
