#include "checkpoint/residuals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>

#include "weft/error.hpp"

namespace weft {
namespace {

std::size_t element_count(NamedParameter const& parameter) {
  return std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::size_t{1}, std::multiplies<>());
}

[[noreturn]] void bad(NamedParameter const& parameter, std::string const& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("training checkpoint: parameter {}: {}", parameter.name, what));
}

// What a run still owes is the mean of its ranks' residuals; it stays the same if every rank now has that mean.
std::vector<float> mean_of_rows(Checkpoint const& checkpoint, std::string const& name, std::size_t rows,
                                std::size_t count) {
  std::vector<double> sum(count, 0);
  std::vector<float> row(count);
  for (std::size_t r = 0; r < rows; ++r) {
    checkpoint.read({name, r * count, std::span(row)});
    std::transform(row.begin(), row.end(), sum.begin(), sum.begin(), std::plus<>());
  }
  std::transform(sum.begin(), sum.end(), row.begin(),
                 [rows](double one) { return static_cast<float>(one / static_cast<double>(rows)); });
  return row;
}

}  // namespace

std::string residual_name(NamedParameter const& parameter) {
  return fmt::format("compression.{}.residual", parameter.name);
}

std::vector<CheckpointTensor> residuals_of(GradientCompressor const& compressor,
                                           std::span<NamedParameter const> parameters, int rank, int ranks) {
  std::vector<CheckpointTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::span<float const> const mine = compressor.residual(i);
    if (mine.empty()) continue;
    if (mine.size() != element_count(parameters[i])) {
      bad(parameters[i],
          fmt::format("has {} elements, the compressor {} residuals of it", element_count(parameters[i]), mine.size()));
    }
    std::vector<std::size_t> shape{static_cast<std::size_t>(ranks)};
    shape.insert(shape.end(), parameters[i].shape.begin(), parameters[i].shape.end());
    tensors.push_back({residual_name(parameters[i]), std::move(shape), static_cast<std::size_t>(rank) * mine.size(),
                       ConstBufferView(mine)});
  }
  return tensors;
}

void check_residuals(Checkpoint const& checkpoint, std::span<NamedParameter const> parameters) {
  for (NamedParameter const& parameter : parameters) {
    std::string const name = residual_name(parameter);
    Checkpoint::Tensor const* const saved = checkpoint.find(name);
    if (saved == nullptr) continue;
    std::vector<std::size_t> const& shape = saved->shape;
    if (shape.empty() || shape.front() == 0 ||
        !std::equal(shape.begin() + 1, shape.end(), parameter.shape.begin(), parameter.shape.end())) {
      bad(parameter, fmt::format("its shape is another in the checkpoint's {}", name));
    }
    if (!is_floating_point(saved->dtype)) {
      bad(parameter, fmt::format("the checkpoint's {} is {}, no floating-point type", name, to_string(saved->dtype)));
    }
  }
}

void load_residuals(Checkpoint const& checkpoint, GradientCompressor& compressor,
                    std::span<NamedParameter const> parameters, int rank, int ranks) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::string const name = residual_name(parameters[i]);
    Checkpoint::Tensor const* const saved = checkpoint.find(name);
    if (saved == nullptr) {
      compressor.set_residual(i, {});
      continue;
    }
    std::size_t const rows = saved->shape.front();
    std::vector<float> values(element_count(parameters[i]));
    if (rows == static_cast<std::size_t>(ranks)) {
      checkpoint.read({name, static_cast<std::size_t>(rank) * values.size(), std::span(values)});
    } else {
      values = mean_of_rows(checkpoint, name, rows, values.size());
    }
    compressor.set_residual(i, std::move(values));
  }
}

}  // namespace weft
