#include "gpt_parameters.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "random.hpp"

namespace train_gpt {

GptParameters::GptParameters(GptConfig const& config) : layers_(config.layers) {
  int const width = config.width;
  begin_unit("embedding");
  add("embedding.tokens", {GptConfig::kVocabulary, width});
  add("embedding.positions", {config.seq, width});
  for (int layer = 0; layer < config.layers; ++layer) {
    std::string const name = fmt::format("layer{}", layer);
    begin_unit(name);
    add(name + ".norm1.weight", {width});
    add(name + ".norm1.bias", {width});
    add(name + ".attention.qkv.weight", {width, 3 * width});
    add(name + ".attention.qkv.bias", {3 * width});
    add(name + ".attention.project.weight", {width, width});
    add(name + ".attention.project.bias", {width});
    add(name + ".norm2.weight", {width});
    add(name + ".norm2.bias", {width});
    add(name + ".mlp.expand.weight", {width, 4 * width});
    add(name + ".mlp.expand.bias", {4 * width});
    add(name + ".mlp.contract.weight", {4 * width, width});
    add(name + ".mlp.contract.bias", {width});
  }
  begin_unit("head");
  add("norm.weight", {width});
  add("norm.bias", {width});
  add("head.weight", {width, GptConfig::kVocabulary});
}

void GptParameters::begin_unit(std::string name) {
  units_.push_back({std::move(name), tensors_.size(), 0});
}

void GptParameters::add(std::string const& name, std::initializer_list<int> shape) {
  Tensor tensor{name, {}, 1, units_.size() - 1};
  for (int const extent : shape) {
    tensor.shape.push_back(static_cast<std::size_t>(extent));
    tensor.count *= tensor.shape.back();
  }
  tensors_.push_back(std::move(tensor));
  ++units_.back().count;
}

std::size_t GptParameters::count() const noexcept {
  std::size_t sum = 0;
  for (Tensor const& tensor : tensors_) sum += tensor.count;
  return sum;
}

double GptParameters::count_of(GptConfig const& config) noexcept {
  double const width = config.width;
  double const ends = width * (2.0 * GptConfig::kVocabulary + config.seq + 2);
  return ends + config.layers * width * (12 * width + 13);
}

std::size_t GptParameters::largest_unit() const noexcept {
  std::vector<std::size_t> sizes(units_.size(), 0);
  for (Tensor const& tensor : tensors_) sizes[tensor.unit] += tensor.count;
  return *std::max_element(sizes.begin(), sizes.end());
}

void GptParameters::initialise(std::size_t index, std::uint64_t seed, std::span<float> values) const {
  std::string const& name = tensors_[index].name;
  if (name.ends_with(".bias")) {
    std::fill(values.begin(), values.end(), 0.0F);
  } else if (name.find("norm") != std::string::npos) {
    std::fill(values.begin(), values.end(), 1.0F);
  } else {
    bool const residual = name.ends_with("project.weight") || name.ends_with("contract.weight");
    double const deviation = residual ? 0.02 / std::sqrt(2.0 * layers_) : 0.02;
    Random random(mix(seed) + index);
    for (float& value : values) value = static_cast<float>(random.normal() * deviation);
  }
}

}  // namespace train_gpt
