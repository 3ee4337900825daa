#pragma once

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "weft/checkpoint.hpp"

namespace weft::test {

/// A tensor with all its bytes.
struct SampleTensor {
  std::vector<std::size_t> shape;
  DataType dtype = DataType::f32;
  std::vector<std::byte> bytes;

  [[nodiscard]] std::size_t count() const { return bytes.size() / size_of(dtype); }
  [[nodiscard]] CheckpointTensor range(std::string const& name, std::size_t first, std::size_t elements) const {
    return {name, shape, first, {bytes.data() + first * size_of(dtype), elements, dtype}};
  }
};
using SampleModel = std::map<std::string, SampleTensor>;

/// Tensors of many types and sizes, among them none, one, odd and more than one block of elements; finite values.
inline SampleModel sample_model(std::uint32_t seed, std::size_t largest = 700'001) {
  std::mt19937 random(seed);
  SampleModel model;
  auto const add = [&](std::string const& name, std::vector<std::size_t> shape, DataType dtype) {
    SampleTensor tensor{std::move(shape), dtype, {}};
    std::size_t count = 1;
    for (std::size_t const extent : tensor.shape) count *= extent;
    tensor.bytes.resize(count * size_of(dtype));
    // Below 0x30 in every byte: no NaN in any floating-point type, so that values compare.
    for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random() % 0x30);
    model.emplace(name, std::move(tensor));
  };
  add("embedding.weight", {largest}, DataType::f32);
  add("layers.0.weight", {37, 53}, DataType::f32);
  add("layers.0.bias", {53}, DataType::f32);
  add("half", {129, 3}, DataType::f16);
  add("brain \"quoted\" \xc3\xa9", {1001}, DataType::bf16);
  add("wide", {2, 3, 5}, DataType::f64);
  add("scalar", {}, DataType::f32);
  add("counts", {7}, DataType::i64);
  add("flags", {11}, DataType::boolean);
  add("bytes", {13}, DataType::u8);
  add("empty", {4, 0}, DataType::f32);
  return model;
}

/// A random division of every tensor among the ranks, the same for all of them; ranges may be empty.
inline std::vector<CheckpointTensor> random_ranges(SampleModel const& model, int rank, int ranks, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<CheckpointTensor> mine;
  for (auto const& [name, tensor] : model) {
    std::vector<std::size_t> cuts{0, tensor.count()};
    for (int cut = 1; cut < ranks; ++cut) cuts.push_back(random() % (tensor.count() + 1));
    std::sort(cuts.begin(), cuts.end());
    std::size_t const shift = random() % 7;
    for (std::size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
      if ((piece + shift) % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank)) {
        mine.push_back(tensor.range(name, cuts[piece], cuts[piece + 1] - cuts[piece]));
      }
    }
  }
  return mine;
}

/// All of it, for a rank that has everything.
inline std::vector<CheckpointTensor> whole_tensors(SampleModel const& model) {
  std::vector<CheckpointTensor> all;
  for (auto const& [name, tensor] : model) all.push_back(tensor.range(name, 0, tensor.count()));
  return all;
}

/// Whether a checkpoint has exactly this model; says the first difference.
inline std::string difference(Checkpoint const& checkpoint, SampleModel const& model) {
  if (checkpoint.tensors().size() != model.size()) return "another number of tensors";
  for (auto const& [name, tensor] : model) {
    Checkpoint::Tensor const* const found = checkpoint.find(name);
    if (found == nullptr) return name + " is missing";
    if (found->shape != tensor.shape || found->dtype != tensor.dtype || found->count != tensor.count()) {
      return name + " has another shape or type";
    }
    std::vector<std::byte> values(tensor.bytes.size());
    checkpoint.read({name, 0, {values.data(), found->count, found->dtype}});
    if (values != tensor.bytes) return name + " has other values";
  }
  return {};
}

}  // namespace weft::test
