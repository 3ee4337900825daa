#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/builders/mesh.hpp"
#include "scheduler/builders/step_graph.hpp"
#include "scheduler/builders/units.hpp"

namespace weft {

/// Builds what happens to one rank's parameters, gradients and optimizer states in a step: which rank keeps which part
/// of them and when they are gathered and reduced, depending on the strategy.
class Parameters {
 public:
  /// Adds the tensors that are there when the step begins. Everything passed by reference has to outlive this.
  Parameters(StepGraph& step, TransformerShape const& shape, TransformerPlan const& plan, MeshGroups const& groups,
             std::vector<Unit> units);

  /// Gathers what is sharded of a unit. To be called before the unit is used in one micro-batch's forward or backward.
  void open(std::size_t unit, int micro_batch, bool backward);
  /// The tensors of its unit that an operator reads, as they were gathered last for the micro-batch.
  [[nodiscard]] std::vector<TensorId> read(std::size_t unit, std::string const& used_by, int micro_batch) const;

  /// Elements of the weights that an operator uses.
  [[nodiscard]] std::int64_t elements(std::size_t unit, std::string const& used_by) const;

  /// Adds the operators that compute the gradients of one operator's weights from `reads`, and the reduction of the
  /// gradients that are then complete. `flops` counts for each element of a weight.
  void add_gradients(std::size_t unit, std::string const& used_by, int micro_batch, double flops,
                     std::vector<TensorId> const& reads);

  /// Adds what follows once all gradients are there: norms, updates, gathers of what was updated.
  void finish();

  [[nodiscard]] std::vector<Unit> const& units() const { return units_; }

 private:
  struct State {
    std::size_t unit = 0;
    Weight weight{};
    std::int64_t shard_elements = 0;
    TensorId parameter = kNone;  ///< whole, or the shard where the strategy shards it
    TensorId states = kNone;
    TensorId gradient = kNone;  ///< of the micro-batches so far that are not in `shard` yet; in the end of all
    TensorId shard = kNone;     ///< the sum of the micro-batches' reduced gradients
  };
  /// Weights that are sent together, by one collective.
  struct Bundle {
    std::string name;
    std::vector<std::size_t> weights{};  ///< indices into states_
    int uses = 0;                        ///< gradients that are computed for it in one micro-batch
    int waits_for = 0;                   ///< gradients still to be computed before it can be reduced
  };

  [[nodiscard]] bool gathers() const {
    return groups_.shard != kNone &&
           (plan_.strategy == TrainingStrategy::zero3 || plan_.strategy == TrainingStrategy::hsdp);
  }
  /// Whether whole gradients are added up, and reduced only after the last micro-batch.
  [[nodiscard]] bool reduces_once() const {
    return groups_.shard == kNone || plan_.strategy == TrainingStrategy::zero1;
  }

  void add_states(std::size_t unit);
  void add_bundles(std::size_t unit);
  [[nodiscard]] std::string name_of(State const& state) const;
  [[nodiscard]] std::vector<std::size_t> weights_of(std::size_t unit, std::string const& used_by) const;
  [[nodiscard]] std::int64_t reduced_bytes(State const& state) const;

  void add_gradient(std::size_t weight, std::string const& name, double flops, std::vector<TensorId> reads);
  void reduce(Bundle const& bundle, int micro_batch);
  void widen(Bundle const& bundle);
  void reduce_among_shards(Bundle const& bundle);
  void accumulate(Bundle const& bundle, bool last);
  void reduce_among_replicas(Bundle const& bundle);

  [[nodiscard]] TensorId add_norm();
  TensorId update(State& state, TensorId norm, std::vector<OpId> const& readers);
  void gather_updated(Bundle const& bundle, std::vector<TensorId> pieces);
  /// For each weight: the operators that read what its update writes over.
  [[nodiscard]] std::vector<std::vector<OpId>> parameter_readers() const;

  StepGraph& step_;
  TransformerShape const& shape_;
  TransformerPlan const& plan_;
  MeshGroups const& groups_;
  int shards_;
  std::vector<Unit> units_;
  std::vector<State> states_;
  std::vector<std::size_t> first_state_;  ///< of each unit, then the number of all states
  std::vector<Bundle> bundles_;
  std::vector<std::size_t> bundle_of_;                                     ///< of each state
  std::map<std::pair<std::size_t, int>, std::vector<TensorId>> gathered_;  ///< by unit and micro-batch
};

}  // namespace weft
