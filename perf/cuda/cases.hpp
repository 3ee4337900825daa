#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/cuda.hpp"

namespace weft::perf {

/// One kernel, or what a training step launches together, at one size.
struct Case {
  std::string name;
  std::size_t elements;
  double bytes;                            ///< bytes that it reads and writes, each counted once
  std::function<void(Stream const&)> run;  ///< enqueues it
  double bar = 0;                          ///< the least share of the copy's bandwidth to reach; 0: not judged
};

/// Makes a case when its turn comes, so that only one case's memory exists at a time.
struct CaseMaker {
  std::string name;
  std::function<Case()> make;
};

/// GPU memory with small random numbers; with zeros the chip would run cooler than in training.
[[nodiscard]] Buffer random_memory(std::size_t count, DataType type);

/// Optimizer steps of `elements` parameters in one tensor, norms, casts.
[[nodiscard]] std::vector<CaseMaker> optimizer_cases(std::size_t elements);
/// A step of `tensors` tensors of `elements` each.
[[nodiscard]] CaseMaker many_tensors_case(std::size_t tensors, std::size_t elements);
/// The trainer's layers on rows·width activations of bf16.
[[nodiscard]] std::vector<CaseMaker> model_cases(std::size_t rows, std::size_t width, std::size_t vocabulary);

}  // namespace weft::perf
