#include "layer_calls.hpp"

#include <algorithm>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "parallel.hpp"
#include "replicas.hpp"
#include "weft/cpu_layers.hpp"

namespace weft::torch_backend {
namespace {

/// Elements that a thread takes at a time, in whole rows: many compared with their sums over rows, and few enough that
/// there are parts for several threads.
constexpr std::size_t kElements = std::size_t{1} << 15;

BufferView view_of(at::Tensor const& tensor, char const* call, char const* name) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu() && tensor.is_contiguous(), "weft::", call, ": ", name, " is on ",
                    tensor.device(), " with strides ", tensor.strides(), "; it must be contiguous and on the CPU");
  auto const count = static_cast<std::size_t>(tensor.numel());
  switch (tensor.scalar_type()) {
    case at::kFloat: return {tensor.mutable_data_ptr(), count, DataType::f32};
    case at::kBFloat16: return {tensor.mutable_data_ptr(), count, DataType::bf16};
    case at::kHalf: return {tensor.mutable_data_ptr(), count, DataType::f16};
    default: break;
  }
  TORCH_CHECK_TYPE(false, "weft::", call, ": ", name, " is ", tensor.scalar_type(),
                   "; weft's layers take float32, bfloat16 and float16");
}

/// Divides a call's matrices into parts of whole rows.
class Rows {
 public:
  Rows(char const* call, at::Tensor const& matrix) : call_(call) {
    TORCH_CHECK_VALUE(matrix.dim() > 0 && matrix.size(-1) > 0, "weft::", call, ": a matrix of shape ", matrix.sizes(),
                      " has no columns");
    width_ = static_cast<std::size_t>(matrix.size(-1));
    rows_ = static_cast<std::size_t>(matrix.numel()) / width_;
    each_ = std::max<std::size_t>(1, kElements / width_);
  }

  [[nodiscard]] std::int64_t width() const noexcept { return static_cast<std::int64_t>(width_); }
  [[nodiscard]] std::int64_t count() const noexcept { return static_cast<std::int64_t>(rows_); }
  [[nodiscard]] std::int64_t parts() const noexcept {
    return static_cast<std::int64_t>(std::max<std::size_t>(1, (rows_ + each_ - 1) / each_));
  }

  [[nodiscard]] BufferView matrix(at::Tensor const& tensor, char const* name) const {
    auto const view = view_of(tensor, call_, name);
    TORCH_CHECK_VALUE(view.count == rows_ * width_, "weft::", call_, ": ", name, " has shape ", tensor.sizes(),
                      "; it must have the input's");
    return view;
  }
  /// A weight or bias as f32; filled with `absent` if there is none.
  [[nodiscard]] at::Tensor vector(OptionalTensor const& tensor, float absent, char const* name) const {
    auto const options = at::TensorOptions(at::kFloat);
    if (!tensor) return absent == 0 ? at::zeros({width()}, options) : at::ones({width()}, options);
    TORCH_CHECK_VALUE(tensor->dim() == 1 && tensor->size(0) == width() && tensor->device().is_cpu(), "weft::", call_,
                      ": ", name, " has shape ", tensor->sizes(), " on ", tensor->device(), "; it must have ", width_,
                      " elements, on the CPU");
    bool const as_is = tensor->scalar_type() == at::kFloat && tensor->is_contiguous();
    return as_is ? *tensor : tensor->to(at::kFloat).contiguous();
  }
  [[nodiscard]] BufferView column(at::Tensor const& tensor, char const* name) const {
    auto const view = view_of(tensor, call_, name);
    TORCH_CHECK_VALUE(view.count == rows_ && view.dtype == DataType::f32, "weft::", call_, ": ", name, " has shape ",
                      tensor.sizes(), "; it must be ", rows_, " float32");
    return view;
  }

  /// Rows of part `index`.
  [[nodiscard]] BufferView part(BufferView const& matrix, std::int64_t index) const {
    return matrix.slice(first(index) * width_, taken(index) * width_);
  }
  [[nodiscard]] BufferView part_of_column(BufferView const& column, std::int64_t index) const {
    return column.slice(first(index), taken(index));
  }
  [[nodiscard]] std::size_t first(std::int64_t index) const noexcept { return static_cast<std::size_t>(index) * each_; }

  template <typename Run>
  void each(Run&& run) const {
    if (rows_ == 0) return;
    for_each_part(static_cast<std::size_t>(parts()), rows_ * width_,
                  [&](std::size_t index) { run(static_cast<std::int64_t>(index)); });
  }

 private:
  [[nodiscard]] std::size_t taken(std::int64_t index) const noexcept { return std::min(each_, rows_ - first(index)); }

  char const* call_;
  std::size_t width_ = 0, rows_ = 0, each_ = 0;
};

/// The parts' sums over their rows, which are added up in the order of parts.
class ColumnSums {
 public:
  ColumnSums(Rows const& rows, std::int64_t outputs)
      : parts_(at::empty({rows.parts(), outputs, rows.width()}, at::TensorOptions(at::kFloat))) {
    std::fill_n(parts_.mutable_data_ptr<float>(), parts_.numel(), 0.0F);
  }

  [[nodiscard]] BufferView of(std::int64_t part, std::int64_t output) const {
    auto const width = parts_.size(2);
    auto* const first = parts_.mutable_data_ptr<float>() + (part * parts_.size(1) + output) * width;
    return {first, static_cast<std::size_t>(width), DataType::f32};
  }
  /// The whole sum, in the first part's memory.
  [[nodiscard]] at::Tensor sum(std::int64_t output) const {
    auto* const total = static_cast<float*>(of(0, output).data);
    for (std::int64_t part = 1; part < parts_.size(0); ++part) {
      auto const* const one = static_cast<float const*>(of(part, output).data);
      for (std::int64_t i = 0; i < parts_.size(2); ++i) total[i] += one[i];
    }
    auto const result = at::empty({parts_.size(2)}, parts_.options());
    std::copy_n(total, parts_.size(2), result.mutable_data_ptr<float>());
    return result;
  }

 private:
  at::Tensor parts_;
};

BufferView floats(at::Tensor const& vector) {
  return {vector.mutable_data_ptr(), static_cast<std::size_t>(vector.numel()), DataType::f32};
}

cpu::Dropout dropout_of(at::Tensor const& seed, double p, char const* call) {
  TORCH_CHECK_VALUE(seed.numel() == 1 && seed.scalar_type() == at::kLong && seed.device().is_cpu(), "weft::", call,
                    ": the seed must be one int64 on the CPU");
  return {p, static_cast<std::uint64_t>(*seed.const_data_ptr<std::int64_t>()), 0};
}

/// A form of GELU, as layers.py names it.
struct GeluCalls {
  char const* name;
  void (*value)(BufferView, ConstBufferView, ConstBufferView);
  void (*gradient)(BufferView, BufferView, ConstBufferView, ConstBufferView, ConstBufferView);
};

GeluCalls gelu_of(std::string const& form) {
  if (form == "none") return {"bias_gelu", cpu::bias_erf_gelu, cpu::bias_erf_gelu_gradient};
  if (form == "quick") return {"bias_quick_gelu", cpu::bias_quick_gelu, cpu::bias_quick_gelu_gradient};
  TORCH_CHECK_VALUE(form == "tanh", "weft::bias_gelu: approximate is ", form, "; it must be none, tanh or quick");
  return {"bias_gelu", cpu::bias_gelu, cpu::bias_gelu_gradient};
}

/// A new contiguous tensor, like the matrices of calls; empty_like() would first look at the matrix's layout.
at::Tensor like(at::Tensor const& matrix) {
  return at::empty(matrix.sizes(), matrix.options());
}

}  // namespace

ThreeTensors layer_norm(at::Tensor const& x, OptionalTensor const& weight, OptionalTensor const& bias, double eps) {
  constexpr char const* kCall = "layer_norm";
  Rows const rows(kCall, x);
  auto const w = rows.vector(weight, 1, "weight");
  auto const b = rows.vector(bias, 0, "bias");
  auto const y = like(x);
  auto const mean = at::empty({rows.count()}, at::TensorOptions(at::kFloat));
  auto const rstd = at::empty({rows.count()}, at::TensorOptions(at::kFloat));
  auto const in = rows.matrix(x, "x");
  auto const out = rows.matrix(y, "y");
  as_torch([&] {
    rows.each([&](std::int64_t part) {
      cpu::layer_norm(rows.part(out, part), rows.part_of_column(floats(mean), part),
                      rows.part_of_column(floats(rstd), part), rows.part(in, part), floats(w), floats(b),
                      static_cast<float>(eps));
    });
  });
  return {y, mean, rstd};
}

ThreeTensors layer_norm_gradient(at::Tensor const& dy, at::Tensor const& x, at::Tensor const& mean,
                                 at::Tensor const& rstd, OptionalTensor const& weight) {
  constexpr char const* kCall = "layer_norm_gradient";
  Rows const rows(kCall, x);
  auto const w = rows.vector(weight, 1, "weight");
  auto const dx = like(x);
  ColumnSums const sums(rows, 2);
  auto const gradient = rows.matrix(dy, "dy");
  auto const in = rows.matrix(x, "x");
  auto const out = rows.matrix(dx, "dx");
  auto const means = rows.column(mean, "mean");
  auto const rstds = rows.column(rstd, "rstd");
  as_torch([&] {
    rows.each([&](std::int64_t part) {
      cpu::layer_norm_gradient(rows.part(out, part), sums.of(part, 0), sums.of(part, 1), rows.part(gradient, part),
                               rows.part(in, part), rows.part_of_column(means, part), rows.part_of_column(rstds, part),
                               floats(w));
    });
  });
  return {dx, sums.sum(0), sums.sum(1)};
}

at::Tensor bias_gelu(at::Tensor const& x, OptionalTensor const& bias, std::string const& form) {
  auto const gelu = gelu_of(form);
  Rows const rows(gelu.name, x);
  auto const b = rows.vector(bias, 0, "bias");
  auto const y = like(x);
  auto const in = rows.matrix(x, "x");
  auto const out = rows.matrix(y, "y");
  as_torch(
      [&] { rows.each([&](std::int64_t part) { gelu.value(rows.part(out, part), rows.part(in, part), floats(b)); }); });
  return y;
}

TwoTensors bias_gelu_gradient(at::Tensor const& dy, at::Tensor const& x, OptionalTensor const& bias,
                              std::string const& form) {
  auto const gelu = gelu_of(form);
  Rows const rows(gelu.name, x);
  auto const b = rows.vector(bias, 0, "bias");
  auto const dx = like(x);
  ColumnSums const sums(rows, 1);
  auto const gradient = rows.matrix(dy, "dy");
  auto const in = rows.matrix(x, "x");
  auto const out = rows.matrix(dx, "dx");
  as_torch([&] {
    rows.each([&](std::int64_t part) {
      gelu.gradient(rows.part(out, part), sums.of(part, 0), rows.part(gradient, part), rows.part(in, part), floats(b));
    });
  });
  return {dx, sums.sum(0)};
}

at::Tensor bias_dropout_add(at::Tensor const& x, OptionalTensor const& bias, at::Tensor const& residual,
                            at::Tensor const& seed, double p) {
  constexpr char const* kCall = "bias_dropout_add";
  Rows const rows(kCall, x);
  auto const b = rows.vector(bias, 0, "bias");
  auto const dropout = dropout_of(seed, p, kCall);
  auto const y = like(x);
  auto const in = rows.matrix(x, "x");
  auto const beside = rows.matrix(residual, "residual");
  auto const out = rows.matrix(y, "y");
  as_torch([&] {
    rows.each([&](std::int64_t part) {
      auto mine = dropout;
      mine.first = rows.first(part) * static_cast<std::size_t>(rows.width());
      cpu::bias_dropout_add(rows.part(out, part), rows.part(in, part), floats(b), rows.part(beside, part), mine);
    });
  });
  return y;
}

TwoTensors bias_dropout_gradient(at::Tensor const& dy, at::Tensor const& seed, double p) {
  constexpr char const* kCall = "bias_dropout_gradient";
  Rows const rows(kCall, dy);
  auto const dropout = dropout_of(seed, p, kCall);
  auto const dx = like(dy);
  ColumnSums const sums(rows, 1);
  auto const gradient = rows.matrix(dy, "dy");
  auto const out = rows.matrix(dx, "dx");
  as_torch([&] {
    rows.each([&](std::int64_t part) {
      auto mine = dropout;
      mine.first = rows.first(part) * static_cast<std::size_t>(rows.width());
      cpu::bias_dropout_gradient(rows.part(out, part), sums.of(part, 0), rows.part(gradient, part), mine);
    });
  });
  return {dx, sums.sum(0)};
}

}  // namespace weft::torch_backend
