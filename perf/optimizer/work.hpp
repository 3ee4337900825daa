#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "weft/weft.hpp"

namespace weft::perf {

/// The optimizer's work after backward, on one rank with several threads. Each thread fills the memory that it uses.
class OptimizerWork {
 public:
  /// bf16 parameters with f32 originals, and f32 gradients of a loss scaled by kScale, which steps set to zero; if
  /// `plain`, f32 parameters instead.
  OptimizerWork(std::size_t count, std::size_t threads, OptimizerOptions const& options, bool plain,
                StateType state = StateType::f32);

  static constexpr float kScale = 1024;

  /// Not timed: writes gradients whose norm is far above the one they are clipped to.
  void write_gradients();
  /// Looks for overflow, unscales, clips to a norm of 1, updates, rounds and zeroes: two passes.
  void step();
  /// The update alone.
  void update();
  /// The loads and stores of step() without its arithmetic. The parameters are worthless afterwards.
  void traffic();

  /// Runs `body` on `threads` threads, each with its number.
  static void on_threads(std::size_t threads, std::function<void(std::size_t)> const& body);

 private:
  std::size_t threads_;
  std::vector<Buffer> parameters_, gradients_;  ///< by thread
  Optimizer optimizer_;
  std::vector<std::vector<Buffer>> moved_;  ///< by thread: traffic()'s original and moments
};

/// AdamW on many small f32 tensors, divided among threads.
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
