// Reductions that gain nothing from vectors: products of complex numbers, and the user's functions.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/reduce_task.hpp"

namespace weft::kernels {
namespace {

/// Neither C99's recovery of infinities nor a fused multiplication: what (a + bi)(c + di) says, rounded step by step.
template <typename T>
struct Complex {
  T real;
  T imaginary;

  Complex operator*(Complex const& by) const {
    return {real * by.real - imaginary * by.imaginary, real * by.imaginary + imaginary * by.real};
  }
};

template <typename T>
Complex<T> element(void const* of, std::size_t i) {
  Complex<T> value;  // of any alignment
  std::memcpy(&value, static_cast<std::byte const*>(of) + i * sizeof value, sizeof value);
  return value;
}

template <typename T>
void multiply(ReduceTask const& task) {
  for (std::size_t i = 0; i < task.count; ++i) {
    auto product = element<T>(task.srcs[0], i);
    for (std::size_t r = 1; r < task.srcs.size(); ++r) product = product * element<T>(task.srcs[r], i);
    for (void* const dst : task.dsts)
      std::memcpy(static_cast<std::byte*>(dst) + i * sizeof product, &product, sizeof product);
  }
}

}  // namespace

void reduce_complex_product(ReduceTask const& task) {
  task.dtype == DataType::c64 ? multiply<float>(task) : multiply<double>(task);
}

void reduce_user(ReduceTask const& task) {
  // A destination may be any of the sources, so elements accumulate apart. What peers gave lies wherever it came.
  constexpr std::size_t kAligned = 64;
  alignas(kAligned) std::byte accumulator[4096];
  alignas(kAligned) std::byte copy[sizeof accumulator];
  static_assert(sizeof accumulator >= Reduction::kMaxElementBytes);
  auto const& user = task.how.user;
  auto const bytes = user.element_bytes != 0 ? user.element_bytes : size_of(task.dtype);
  auto const block = sizeof accumulator / bytes;
  for (std::size_t first = 0; first < task.count; first += block) {
    auto const count = std::min(block, task.count - first);
    auto const offset = first * bytes;
    std::memcpy(accumulator, static_cast<std::byte const*>(task.srcs[0]) + offset, count * bytes);
    for (std::size_t r = 1; r < task.srcs.size(); ++r) {
      auto const* next = static_cast<std::byte const*>(task.srcs[r]) + offset;
      if (reinterpret_cast<std::uintptr_t>(next) % kAligned != 0)
        next = static_cast<std::byte const*>(std::memcpy(copy, next, count * bytes));
      user.combine(accumulator, next, count, user.context);
    }
    for (void* const dst : task.dsts) std::memcpy(static_cast<std::byte*>(dst) + offset, accumulator, count * bytes);
  }
}

}  // namespace weft::kernels
