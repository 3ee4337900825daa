#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "weft/weft.hpp"

namespace weft::perf {

/// What threads do to parameters after backward, on one rank. Memory is filled by the thread that uses it.
class OptimizerWork {
 public:
  /// bf16 parameters with f32 originals and f32 gradients of a loss scaled by kScale, which steps leave zeroed; or
  /// (`plain`) f32 parameters.
  OptimizerWork(std::size_t count, std::size_t threads, OptimizerOptions const& options, bool plain,
                StateType state = StateType::f32);

  static constexpr float kScale = 1024;

  /// Untimed: gradients whose norm is far above what they are clipped to.
  void write_gradients();
  /// Looks for overflow, unscales, clips to a norm of 1, updates, rounds and zeroes: two passes.
  void step();
  /// The update alone.
  void update();
  /// Loads and stores of step() without its arithmetic. Parameters are of no use afterwards.
  void traffic();

  /// Runs `body` with each thread's number, on as many threads.
  static void on_threads(std::size_t threads, std::function<void(std::size_t)> const& body);

 private:
  std::size_t threads_;
  std::vector<Buffer> parameters_, gradients_;  ///< by thread
  Optimizer optimizer_;
  std::vector<std::vector<Buffer>> moved_;  ///< by thread: traffic()'s original and moments
};

/// AdamW of many small f32 tensors, which threads share.
class ManyTensorsWork {
 public:
  ManyTensorsWork(std::size_t tensors, std::size_t elements, std::size_t threads);

  void update();

 private:
  std::size_t threads_;
  std::vector<Buffer> parameters_, gradients_;
  Optimizer optimizer_;
};

}  // namespace weft::perf
