#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/recompute/repeatable.hpp"

namespace weft {

/// The place of an operator in an order; kNever: no place.
using Place = std::int32_t;
inline constexpr Place kNever = std::numeric_limits<Place>::max();

/// Bytes that are live while each task runs, where tasks run one after another in this order.
[[nodiscard]] std::vector<std::int64_t> live_bytes(Problem const& problem, std::vector<TaskId> const& order);

/// A graph in one order, with what a selection needs to know of it.
class StepOrder {
 public:
  enum class Base : std::uint8_t {
    least_memory,  ///< low_memory_order()
    ids,           ///< of the operators that can run next, the one of lowest id
  };
  /// `graph` and `model` have to outlive it.
  StepOrder(OpGraph const& graph, CostModel const& model, RecomputeOptions const& options,
            Base base = Base::least_memory);

  [[nodiscard]] OpGraph const& graph() const { return problem_.graph(); }
  [[nodiscard]] CostModel const& model() const { return problem_.model(); }
  [[nodiscard]] std::vector<OpId> const& order() const { return order_; }
  [[nodiscard]] Place place(OpId op) const { return place_[at(op)]; }
  [[nodiscard]] double seconds(OpId op) const { return problem_.task(op).seconds; }
  [[nodiscard]] Obstacle obstacle(OpId op) const { return obstacles_[at(op)]; }
  [[nodiscard]] bool may_repeat(OpId op) const { return obstacle(op) == Obstacle::none; }

  [[nodiscard]] OpId writer(TensorId tensor) const { return writers_[at(tensor)]; }
  /// By rising place.
  [[nodiscard]] std::vector<OpId> const& readers(TensorId tensor) const { return readers_[at(tensor)]; }
  [[nodiscard]] TensorId memory(TensorId tensor) const { return memory_[at(tensor)]; }
  /// The operator that writes the next state of the tensor's memory, or kNone.
  [[nodiscard]] OpId overwritten_by(TensorId tensor) const { return overwritten_by_[at(tensor)]; }
  /// Whether the operator reads the tensor and writes a later state of its memory.
  [[nodiscard]] bool writes_into(OpId op, TensorId tensor) const;
  /// The tensor itself, or an equal one (the same shard, gathered again), whichever is there nearest to `place`.
  [[nodiscard]] TensorId nearest_equal(TensorId tensor, Place place) const;
  [[nodiscard]] bool is_kept(TensorId tensor) const { return kept_[at(memory(tensor))]; }
  /// Another operator names it in `after`.
  [[nodiscard]] bool is_waited_for(OpId op) const { return waited_for_[at(op)]; }
  [[nodiscard]] bool has_other_states(TensorId tensor) const { return states_[at(memory(tensor))] > 1; }

  [[nodiscard]] std::vector<std::int64_t> const& live() const { return live_; }  ///< by place
  [[nodiscard]] std::int64_t peak() const;

 private:
  static std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }
  void find_states();
  void find_equal_gathers();

  Problem problem_;
  std::vector<OpId> order_;
  std::vector<Place> place_;
  std::vector<Obstacle> obstacles_;
  std::vector<OpId> writers_;
  std::vector<std::vector<OpId>> readers_;
  std::vector<TensorId> memory_;
  std::vector<OpId> overwritten_by_;
  std::vector<int> states_;           ///< written, by memory
  std::vector<bool> kept_;            ///< by memory
  std::vector<bool> waited_for_;      ///< by operator
  std::vector<std::int32_t> equals_;  ///< index into equal_, by tensor; or kNone
  std::vector<std::vector<TensorId>> equal_;
  std::vector<std::int64_t> live_;
};

}  // namespace weft
