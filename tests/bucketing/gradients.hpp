#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "weft/bucketer.hpp"

namespace weft::test {

/// Counts that provoke padding, empty tensors and tensors larger than a cap; all f32.
inline std::vector<TensorSpec> model(std::size_t tensors, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < tensors; ++i) specs.push_back({random() % 7 == 0 ? 0 : random() % 3000});
  return specs;
}

/// Element `i` of `rank`'s gradient of `tensor` in `step`: any rank can compute any other's.
inline float gradient_value(int rank, std::size_t step, std::size_t tensor, std::size_t i) {
  std::uint64_t x = i + 0x9e3779b97f4a7c15U * (tensor + 1) + 0xbf58476d1ce4e5b9U * (step + 1) +
                    0x94d049bb133111ebU * (static_cast<std::uint64_t>(rank) + 1);
  x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93U;
  x ^= x >> 29;
  return static_cast<float>(static_cast<std::int64_t>(x % 2000001) - 1000000) * 1e-5F;
}

inline std::span<float> floats(BufferView view) {
  return {static_cast<float*>(view.data), view.count};
}

inline void write_gradient(Bucketer& bucketer, int rank, std::size_t step, std::size_t tensor) {
  std::span<float> const out = floats(bucketer.gradient(tensor));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = gradient_value(rank, step, tensor, i);
}

inline std::vector<std::size_t> shuffled(std::size_t tensors, std::uint64_t seed) {
  std::vector<std::size_t> order(tensors);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

/// The average over `ranks` in double precision.
inline double average(int ranks, std::size_t step, std::size_t tensor, std::size_t i) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += gradient_value(rank, step, tensor, i);
  return sum / ranks;
}

/// Every tensor's gradient, one after the other.
inline std::vector<float> all_gradients(Bucketer const& bucketer) {
  std::vector<float> all;
  for (std::size_t t = 0; t < bucketer.tensor_count(); ++t) {
    std::span<float> const one = floats(bucketer.gradient(t));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

inline bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace weft::test
