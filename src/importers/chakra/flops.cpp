#include "importers/chakra/flops.hpp"

#include <algorithm>

namespace weft::chakra {

namespace {

using Shape = std::vector<std::int64_t>;

double product(Shape const& shape) {
  double elements = 1;
  for (auto const each : shape) elements *= static_cast<double>(std::max<std::int64_t>(each, 0));
  return elements;
}

Shape const* shape_of(Node const& node, std::size_t argument) {
  for (auto const& use : node.inputs) {
    if (use.argument == argument) return &use.shape;
  }
  return nullptr;
}

/// The product of a[…, m, k] and b[…, k, n].
std::optional<double> of_matrices(Shape const* a, Shape const* b) {
  if (a == nullptr || b == nullptr || a->size() < 2 || b->size() < 2) return std::nullopt;
  return 2 * product(*a) * static_cast<double>(std::max<std::int64_t>(b->back(), 0));
}

/// Attention of queries[…, m, d] and keys[…, n, d]: the scores, and their product with the values.
std::optional<double> of_attention(Shape const* queries, Shape const* keys) {
  if (queries == nullptr || keys == nullptr || queries->size() < 3 || keys->size() < 3) return std::nullopt;
  return 4 * product(*queries) * static_cast<double>(std::max<std::int64_t>((*keys)[keys->size() - 2], 0));
}

/// A convolution, from its result and weights[out, in, …].
std::optional<double> of_convolution(Node const& node) {
  auto const* weights = shape_of(node, 1);
  if (weights == nullptr || weights->size() < 2 || weights->front() < 1 || node.outputs.empty()) return std::nullopt;
  return 2 * product(node.outputs.front().shape) * product(*weights) / static_cast<double>(weights->front());
}

std::optional<double> flops_by_name(Node const& node) {
  auto const& name = node.name;
  if (name == "aten::mm" || name == "aten::bmm") return of_matrices(shape_of(node, 0), shape_of(node, 1));
  if (name == "aten::addmm" || name == "aten::baddbmm") return of_matrices(shape_of(node, 1), shape_of(node, 2));
  if (name == "aten::convolution") return of_convolution(node);
  if (name.find("_scaled_dot_product") != std::string::npos) {
    bool const backward = name.find("backward") != std::string::npos;  // a backward's first argument is the gradient
    auto const forward = of_attention(shape_of(node, backward ? 1 : 0), shape_of(node, backward ? 2 : 1));
    if (forward) return *forward * (backward ? 2.5 : 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> flops_of(Node const& node) {
  constexpr double kMost = 1e30;  // more can only come of shapes that no tensor has
  auto const flops = flops_by_name(node);
  return flops && *flops <= kMost ? flops : std::nullopt;
}

}  // namespace weft::chakra
