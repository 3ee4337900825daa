#include <algorithm>
#include <string>

#include "kernels/cuda/model/bias.hpp"
#include "kernels/cuda/model/bias_gelu.hpp"
#include "kernels/cuda/model/layer_norm.hpp"
#include "layers/layers_impl.hpp"

namespace weft::cuda {
namespace {

namespace kc = kernels::cuda;

Device device_of(Stream const& stream) {
  if (stream.device().type == DeviceType::cuda) return stream.device();
  throw Error(ErrorCode::invalid_argument, "cuda::Layers: the stream is on " + to_string(stream.device()));
}

std::size_t slabs_of(std::size_t rows) {
  return (rows + kc::kSlabRows - 1) / kc::kSlabRows;
}

}  // namespace

// A layer norm sums two gradients at once.
Layers::Impl::Impl(Stream const& stream, Limits const& limits)
    : stream_(stream),
      limits_(limits),
      machine_(device_of(stream).index),
      cublas_(stream),
      parts_(machine_.allocate(slabs_of(limits.rows) * 2 * limits.columns * sizeof(float))) {}

void Layers::Impl::check_limits(char const* call, std::size_t rows, std::size_t width) const {
  if (slabs_of(rows) <= slabs_of(limits_.rows) && width <= limits_.columns) return;
  throw Error(ErrorCode::invalid_argument, "cuda::Layers::" + std::string(call) + ": a matrix of " +
                                               std::to_string(rows) + " x " + std::to_string(width) +
                                               "; these layers were made for " + std::to_string(limits_.rows) + " x " +
                                               std::to_string(limits_.columns));
}

Layers::Layers(Stream const& stream, Limits const& limits) : impl_(std::make_unique<Impl>(stream, limits)) {}
Layers::~Layers() = default;
Layers::Layers(Layers&&) noexcept = default;
Layers& Layers::operator=(Layers&&) noexcept = default;

namespace {

Product::Operand matrix(kc::TensorPointer const& tensor, std::size_t leading, bool transposed = false) {
  return {tensor.data, tensor.type, leading, 0, transposed};
}

/// What cuBLAS multiplies: two of a type, into that type or f32.
void check_types(Arguments const& arguments, kc::TensorPointer const& one, kc::TensorPointer const& other,
                 kc::TensorPointer const& result) {
  arguments.require(one.type == other.type, "what is multiplied must be of one type");
  arguments.require(result.type == one.type || result.type == DataType::f32,
                    "a product must be of its factors' type, or f32");
}

/// `impl` is a Layers::Impl. y = activation(x + b)
template <typename Activation, typename Impl>
void activate(Impl const& impl, char const* call, BufferView const& y, ConstBufferView const& x,
              ConstBufferView const& b) {
  Arguments const arguments(call, impl.device());
  auto const rows = arguments.rows(y, b.count, "y");
  impl.launch(
      kc::BiasActivationBody<Activation>{arguments.tensor(y, y.count, "y"), arguments.tensor(x, y.count, "x"),
                                         arguments.tensor(b, b.count, "b"), static_cast<std::uint32_t>(b.count)},
      rows);
}

/// dx = dy·activation'(x + b), db its sum over rows
template <typename Activation, typename Impl>
void differentiate(Impl const& impl, char const* call, BufferView const& dx, BufferView const& db,
                   ConstBufferView const& dy, ConstBufferView const& x, ConstBufferView const& b, float keep) {
  Arguments const arguments(call, impl.device());
  auto const rows = arguments.rows(dx, b.count, "dx");
  static_cast<void>(arguments.tensor(db, b.count, "db"));
  kc::BiasActivationGradient<Activation> const source{
      arguments.tensor(dx, dx.count, "dx"), arguments.tensor(dy, dx.count, "dy"), arguments.tensor(x, dx.count, "x"),
      arguments.tensor(b, b.count, "b")};
  impl.sum_columns(call, source, rows, b.count, keep, db);
}

}  // namespace

void Layers::linear(BufferView y, ConstBufferView x, ConstBufferView w, LinearShape const& shape) {
  Arguments const arguments("linear", impl_->device());
  auto const to = arguments.tensor(y, shape.rows * shape.out, "y");
  auto const from = arguments.tensor(x, shape.rows * shape.in, "x");
  auto const weights = arguments.tensor(w, shape.in * shape.out, "w");
  check_types(arguments, from, weights, to);
  impl_->cublas().multiply(
      {matrix(from, shape.in), matrix(weights, shape.out), matrix(to, shape.out), shape.rows, shape.out, shape.in});
}

void Layers::linear_weight_gradient(BufferView dw, ConstBufferView dy, ConstBufferView x, LinearShape const& shape,
                                    float keep) {
  Arguments const arguments("linear_weight_gradient", impl_->device());
  auto const to = arguments.tensor(dw, shape.in * shape.out, "dw");
  auto const gradient = arguments.tensor(dy, shape.rows * shape.out, "dy");
  auto const from = arguments.tensor(x, shape.rows * shape.in, "x");
  check_types(arguments, from, gradient, to);
  impl_->cublas().multiply({matrix(from, shape.in, true), matrix(gradient, shape.out), matrix(to, shape.out), shape.in,
                            shape.out, shape.rows, 1, keep});
}

void Layers::linear_input_gradient(BufferView dx, ConstBufferView dy, ConstBufferView w, LinearShape const& shape) {
  Arguments const arguments("linear_input_gradient", impl_->device());
  auto const to = arguments.tensor(dx, shape.rows * shape.in, "dx");
  auto const gradient = arguments.tensor(dy, shape.rows * shape.out, "dy");
  auto const weights = arguments.tensor(w, shape.in * shape.out, "w");
  check_types(arguments, gradient, weights, to);
  impl_->cublas().multiply({matrix(gradient, shape.out), matrix(weights, shape.out, true), matrix(to, shape.in),
                            shape.rows, shape.in, shape.out});
}

void Layers::add_bias(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width) {
  Arguments const arguments("add_bias", impl_->device());
  auto const rows = arguments.rows(y, width, "y");
  impl_->launch(
      kc::BiasActivationBody<kc::Identity>{arguments.tensor(y, y.count, "y"), arguments.tensor(x, y.count, "x"),
                                           arguments.optional(b, width, "b"), static_cast<std::uint32_t>(width)},
      rows);
}

void Layers::add_bias_and_residual(BufferView y, ConstBufferView x, ConstBufferView b, ConstBufferView residual) {
  Arguments const arguments("add_bias_and_residual", impl_->device());
  auto const rows = arguments.rows(y, b.count, "y");
  impl_->launch(kc::BiasAddBody{arguments.tensor(y, y.count, "y"), arguments.tensor(x, y.count, "x"),
                                arguments.tensor(b, b.count, "b"), arguments.tensor(residual, y.count, "residual"),
                                static_cast<std::uint32_t>(b.count)},
                rows);
}

void Layers::bias_gradient(BufferView db, ConstBufferView dy, float keep) {
  constexpr char const* kCall = "bias_gradient";
  Arguments const arguments(kCall, impl_->device());
  auto const rows = arguments.rows(dy, db.count, "dy");
  static_cast<void>(arguments.tensor(db, db.count, "db"));
  impl_->sum_columns(kCall, kc::BiasGradient{arguments.tensor(dy, dy.count, "dy")}, rows, db.count, keep, db);
}

void Layers::bias_gelu(BufferView y, ConstBufferView x, ConstBufferView b) {
  activate<kernels::Gelu>(*impl_, "bias_gelu", y, x, b);
}
void Layers::bias_quick_gelu(BufferView y, ConstBufferView x, ConstBufferView b) {
  activate<kernels::QuickGelu>(*impl_, "bias_quick_gelu", y, x, b);
}
void Layers::bias_erf_gelu(BufferView y, ConstBufferView x, ConstBufferView b) {
  activate<kernels::ErfGelu>(*impl_, "bias_erf_gelu", y, x, b);
}

void Layers::bias_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b,
                                float keep) {
  differentiate<kernels::Gelu>(*impl_, "bias_gelu_gradient", dx, db, dy, x, b, keep);
}
void Layers::bias_quick_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x,
                                      ConstBufferView b, float keep) {
  differentiate<kernels::QuickGelu>(*impl_, "bias_quick_gelu_gradient", dx, db, dy, x, b, keep);
}
void Layers::bias_erf_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x,
                                    ConstBufferView b, float keep) {
  differentiate<kernels::ErfGelu>(*impl_, "bias_erf_gelu_gradient", dx, db, dy, x, b, keep);
}

void Layers::layer_norm(BufferView y, BufferView mean, BufferView rstd, ConstBufferView x, ConstBufferView w,
                        ConstBufferView b) {
  Arguments const arguments("layer_norm", impl_->device());
  auto const rows = arguments.rows(y, w.count, "y");
  impl_->launch(kc::LayerNormBody{arguments.tensor(y, y.count, "y"), arguments.tensor(x, y.count, "x"),
                                  arguments.tensor(w, w.count, "w"), arguments.tensor(b, w.count, "b"),
                                  arguments.floats(mean, rows, "mean"), arguments.floats(rstd, rows, "rstd"),
                                  static_cast<std::uint32_t>(w.count), 1e-5F},
                rows);
}

void Layers::layer_norm_weight_gradient(BufferView dw, BufferView db, ConstBufferView dy, ConstBufferView x,
                                        ConstBufferView mean, ConstBufferView rstd, float keep) {
  constexpr char const* kCall = "layer_norm_weight_gradient";
  Arguments const arguments(kCall, impl_->device());
  auto const rows = arguments.rows(dy, dw.count, "dy");
  static_cast<void>(arguments.tensor(dw, dw.count, "dw"));
  static_cast<void>(arguments.tensor(db, dw.count, "db"));
  kc::LayerNormWeights const source{arguments.tensor(dy, dy.count, "dy"), arguments.tensor(x, dy.count, "x"),
                                    arguments.floats(mean, rows, "mean"), arguments.floats(rstd, rows, "rstd")};
  impl_->sum_columns(kCall, source, rows, dw.count, keep, dw, db);
}

void Layers::layer_norm_input_gradient(BufferView dx, ConstBufferView dy, ConstBufferView x, ConstBufferView mean,
                                       ConstBufferView rstd, ConstBufferView w, bool add) {
  Arguments const arguments("layer_norm_input_gradient", impl_->device());
  auto const rows = arguments.rows(dx, w.count, "dx");
  impl_->launch(kc::LayerNormInputBody{arguments.tensor(dx, dx.count, "dx"), arguments.tensor(dy, dx.count, "dy"),
                                       arguments.tensor(x, dx.count, "x"), arguments.tensor(w, w.count, "w"),
                                       arguments.floats(mean, rows, "mean"), arguments.floats(rstd, rows, "rstd"),
                                       static_cast<std::uint32_t>(w.count), add},
                rows);
}

}  // namespace weft::cuda
