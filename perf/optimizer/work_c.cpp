// OptimizerWork for Python: perf/compare_optimizers.py.
#include <exception>

#include "optimizer/work.hpp"

extern "C" {

/// Null where there is not enough memory.
void* weft_optimizer_create(std::size_t count, std::size_t threads, int plain) {
  try {
    return new weft::perf::OptimizerWork(count, threads, weft::AdamWOptions{}, plain != 0);
  } catch (std::exception const&) {
    return nullptr;
  }
}
void weft_optimizer_write_gradients(void* work) {
  static_cast<weft::perf::OptimizerWork*>(work)->write_gradients();
}
void weft_optimizer_step(void* work) {
  static_cast<weft::perf::OptimizerWork*>(work)->step();
}
void weft_optimizer_update(void* work) {
  static_cast<weft::perf::OptimizerWork*>(work)->update();
}
/// Null where there is not enough memory.
void* weft_many_tensors_create(std::size_t tensors, std::size_t elements, std::size_t threads) {
  try {
    return new weft::perf::ManyTensorsWork(tensors, elements, threads);
  } catch (std::exception const&) {
    return nullptr;
  }
}
void weft_many_tensors_update(void* work) {
  static_cast<weft::perf::ManyTensorsWork*>(work)->update();
}
}
