#include <algorithm>
#include <string>

#include "kernels/cuda/model/bias.hpp"
#include "kernels/cuda/model/bias_gelu.hpp"
#include "kernels/cuda/model/dropout.hpp"
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

Layers::Impl::Impl(Stream const& stream, Limits const& limits)
    : stream_(stream),
      limits_(limits),
      machine_(device_of(stream).index),
      cublas_(std::in_place, stream),
      memory_(machine_.allocate(scratch_count(limits) * sizeof(float))),
      parts_(memory_.data()) {}

Layers::Impl::Impl(Stream const& stream, Limits const& limits, BufferView scratch)
    : stream_(stream), limits_(limits), machine_(device_of(stream).index), parts_(scratch.data) {
  auto const needed = scratch_count(limits);
  bool const there = scratch.data != nullptr && scratch.dtype == DataType::f32 && scratch.device == device();
  if (needed == 0 || (there && scratch.count >= needed)) return;
  throw Error(ErrorCode::invalid_argument, "cuda::Layers: scratch is " + std::to_string(scratch.count) + " " +
                                               std::string(to_string(scratch.dtype)) + " on " +
                                               to_string(scratch.device) + "; it must be " + std::to_string(needed) +
                                               " f32 on " + to_string(device()));
}

Cublas const& Layers::Impl::cublas(char const* call) const {
  if (cublas_) return *cublas_;
  throw Error(ErrorCode::unsupported, "cuda::Layers::" + std::string(call) +
                                          ": these layers were made in memory of the caller's, without cuBLAS");
}

void Layers::Impl::finish_columns(std::uint32_t outputs, std::uint32_t slabs, std::uint32_t width, float keep,
                                  BufferView first, BufferView second) const {
  kc::FinishColumnsBody const finish{static_cast<float const*>(parts_),
                                     slabs,
                                     outputs,
                                     width,
                                     {{first.data, first.dtype}, {second.data, second.dtype}},
                                     keep};
  launch(finish, finish.blocks());
}

void Layers::Impl::layer_norm_gradient(kc::LayerNormInputBody const& input, std::size_t rows, BufferView dw,
                                       BufferView db, float keep) const {
  check_limits("layer_norm_gradient", rows, input.width);
  kc::launch_layer_norm_gradient(input, rows, static_cast<float*>(parts_),
                                 [this](auto const& body, std::size_t blocks) { launch(body, blocks); });
  finish_columns(2, slabs_of(rows), input.width, keep, dw, db);
}

void Layers::Impl::check_limits(char const* call, std::size_t rows, std::size_t width) const {
  if (slabs_of(rows) <= slabs_of(limits_.rows) && width <= limits_.columns) return;
  throw Error(ErrorCode::invalid_argument, "cuda::Layers::" + std::string(call) + ": a matrix of " +
                                               std::to_string(rows) + " x " + std::to_string(width) +
                                               "; these layers were made for " + std::to_string(limits_.rows) + " x " +
                                               std::to_string(limits_.columns));
}

Layers::Layers(Stream const& stream, Limits const& limits) : impl_(std::make_unique<Impl>(stream, limits)) {}
Layers::Layers(Stream const& stream, Limits const& limits, BufferView scratch)
    : impl_(std::make_unique<Impl>(stream, limits, scratch)) {}
Layers::~Layers() = default;
Layers::Layers(Layers&&) noexcept = default;
Layers& Layers::operator=(Layers&&) noexcept = default;

// Twice the columns, because a layer norm sums two gradients at once.
std::size_t Layers::scratch_count(Limits const& limits) noexcept {
  return slabs_of(limits.rows) * 2 * limits.columns;
}

namespace {

Product::Operand matrix(kc::TensorPointer const& tensor, std::size_t leading, bool transposed = false) {
  return {tensor.data, tensor.type, leading, 0, transposed};
}

/// Checks the types of a product: cuBLAS multiplies two matrices of one type, into that type or f32.
void check_types(Arguments const& arguments, kc::TensorPointer const& one, kc::TensorPointer const& other,
                 kc::TensorPointer const& result) {
  arguments.require(one.type == other.type, "what is multiplied must be of one type");
  arguments.require(result.type == one.type || result.type == DataType::f32,
                    "a product must be of its factors' type, or f32");
}

/// y = activation(x + b). `impl` is a Layers::Impl. `width` is a row's where b is empty.
template <typename Activation, typename Impl>
void activate(Impl const& impl, char const* call, BufferView const& y, ConstBufferView const& x,
              ConstBufferView const& b, std::size_t width) {
  Arguments const arguments(call, impl.device());
  if (width == 0) width = b.count;
  auto const rows = arguments.rows(y, width, "y");
  impl.launch(kc::BiasActivationBody<Activation>{arguments.tensor(y, y.count, "y"), arguments.tensor(x, y.count, "x"),
                                                 arguments.optional(b, width, "b"), static_cast<std::uint32_t>(width)},
              rows);
}

/// dx = dy·activation'(x + b), and db is its sum over rows.
template <typename Activation, typename Impl>
void differentiate(Impl const& impl, char const* call, BufferView const& dx, BufferView const& db,
                   ConstBufferView const& dy, ConstBufferView const& x, ConstBufferView const& b, float keep) {
  Arguments const arguments(call, impl.device());
  auto const width = db.count;
  auto const rows = arguments.rows(dx, width, "dx");
  static_cast<void>(arguments.tensor(db, width, "db"));
  kc::BiasActivationGradient<Activation> const source{
      arguments.tensor(dx, dx.count, "dx"), arguments.tensor(dy, dx.count, "dy"), arguments.tensor(x, dx.count, "x"),
      arguments.optional(b, width, "b")};
  impl.sum_columns(call, source, rows, width, keep, db);
}

/// The width of a layer norm's matrix, which has one mean for each row.
std::size_t width_of(Arguments const& arguments, ConstBufferView const& matrix, ConstBufferView const& mean) {
  bool const whole = mean.count == 0 ? matrix.count == 0 : matrix.count != 0 && matrix.count % mean.count == 0;
  arguments.require(whole, "mean must have one f32 for each row");
  return mean.count == 0 ? 0 : matrix.count / mean.count;
}

}  // namespace

void Layers::linear(BufferView y, ConstBufferView x, ConstBufferView w, LinearShape const& shape) {
  Arguments const arguments("linear", impl_->device());
  auto const to = arguments.tensor(y, shape.rows * shape.out, "y");
  auto const from = arguments.tensor(x, shape.rows * shape.in, "x");
  auto const weights = arguments.tensor(w, shape.in * shape.out, "w");
  check_types(arguments, from, weights, to);
  impl_->cublas("linear").multiply(
      {matrix(from, shape.in), matrix(weights, shape.out), matrix(to, shape.out), shape.rows, shape.out, shape.in});
}

void Layers::linear_weight_gradient(BufferView dw, ConstBufferView dy, ConstBufferView x, LinearShape const& shape,
                                    float keep) {
  Arguments const arguments("linear_weight_gradient", impl_->device());
  auto const to = arguments.tensor(dw, shape.in * shape.out, "dw");
  auto const gradient = arguments.tensor(dy, shape.rows * shape.out, "dy");
  auto const from = arguments.tensor(x, shape.rows * shape.in, "x");
  check_types(arguments, from, gradient, to);
  impl_->cublas("linear_weight_gradient")
      .multiply({matrix(from, shape.in, true), matrix(gradient, shape.out), matrix(to, shape.out), shape.in, shape.out,
                 shape.rows, 1, keep});
}

void Layers::linear_input_gradient(BufferView dx, ConstBufferView dy, ConstBufferView w, LinearShape const& shape) {
  Arguments const arguments("linear_input_gradient", impl_->device());
  auto const to = arguments.tensor(dx, shape.rows * shape.in, "dx");
  auto const gradient = arguments.tensor(dy, shape.rows * shape.out, "dy");
  auto const weights = arguments.tensor(w, shape.in * shape.out, "w");
  check_types(arguments, gradient, weights, to);
  impl_->cublas("linear_input_gradient")
      .multiply({matrix(gradient, shape.out), matrix(weights, shape.out, true), matrix(to, shape.in), shape.rows,
                 shape.in, shape.out});
}

void Layers::add_bias(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width) {
  activate<kc::Identity>(*impl_, "add_bias", y, x, b, width);
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

void Layers::bias_gelu(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width) {
  activate<kernels::Gelu>(*impl_, "bias_gelu", y, x, b, width);
}
void Layers::bias_quick_gelu(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width) {
  activate<kernels::QuickGelu>(*impl_, "bias_quick_gelu", y, x, b, width);
}
void Layers::bias_erf_gelu(BufferView y, ConstBufferView x, ConstBufferView b, std::size_t width) {
  activate<kernels::ErfGelu>(*impl_, "bias_erf_gelu", y, x, b, width);
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

void Layers::bias_dropout_add(BufferView y, ConstBufferView x, ConstBufferView b, ConstBufferView residual,
                              Dropout const& dropout, std::size_t width) {
  Arguments const arguments("bias_dropout_add", impl_->device());
  if (width == 0) width = b.count;
  auto const rows = arguments.rows(y, width, "y");
  impl_->launch(
      kc::BiasDropoutAddBody{arguments.tensor(y, y.count, "y"), arguments.tensor(x, y.count, "x"),
                             arguments.optional(b, width, "b"), arguments.tensor(residual, y.count, "residual"),
                             arguments.dropout(dropout), static_cast<std::uint32_t>(width)},
      rows);
}

void Layers::bias_dropout_gradient(BufferView dx, BufferView db, ConstBufferView dy, Dropout const& dropout,
                                   float keep) {
  constexpr char const* kCall = "bias_dropout_gradient";
  Arguments const arguments(kCall, impl_->device());
  auto const rows = arguments.rows(dx, db.count, "dx");
  static_cast<void>(arguments.tensor(db, db.count, "db"));
  kc::BiasDropoutGradient const source{arguments.tensor(dx, dx.count, "dx"), arguments.tensor(dy, dx.count, "dy"),
                                       arguments.dropout(dropout)};
  impl_->sum_columns(kCall, source, rows, db.count, keep, db);
}

void Layers::layer_norm(BufferView y, BufferView mean, BufferView rstd, ConstBufferView x, ConstBufferView w,
                        ConstBufferView b, float eps) {
  Arguments const arguments("layer_norm", impl_->device());
  auto const rows = mean.count;
  auto const width = width_of(arguments, y, mean);
  if (rows == 0) return;
  impl_->launch(kc::LayerNormBody{arguments.tensor(y, y.count, "y"), arguments.tensor(x, y.count, "x"),
                                  arguments.optional(w, width, "w"), arguments.optional(b, width, "b"),
                                  arguments.floats(mean, rows, "mean"), arguments.floats(rstd, rows, "rstd"),
                                  static_cast<std::uint32_t>(width), eps},
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
  auto const rows = mean.count;
  auto const width = width_of(arguments, dx, mean);
  if (rows == 0) return;
  impl_->launch(kc::LayerNormInputBody{arguments.tensor(dx, dx.count, "dx"), arguments.tensor(dy, dx.count, "dy"),
                                       arguments.tensor(x, dx.count, "x"), arguments.optional(w, width, "w"),
                                       arguments.floats(mean, rows, "mean"), arguments.floats(rstd, rows, "rstd"),
                                       static_cast<std::uint32_t>(width), add},
                rows);
}

void Layers::layer_norm_gradient(BufferView dx, BufferView dw, BufferView db, ConstBufferView dy, ConstBufferView x,
                                 ConstBufferView mean, ConstBufferView rstd, ConstBufferView w, float keep, bool add) {
  if (dw.count > kc::kMostLayerNormGradientColumns || mean.count == 0) {
    layer_norm_weight_gradient(dw, db, dy, x, mean, rstd, keep);
    return layer_norm_input_gradient(dx, dy, x, mean, rstd, w, add);
  }
  Arguments const arguments("layer_norm_gradient", impl_->device());
  auto const width = width_of(arguments, dx, mean);
  static_cast<void>(arguments.tensor(dw, width, "dw"));
  static_cast<void>(arguments.tensor(db, width, "db"));
  auto const rows = mean.count;
  impl_->layer_norm_gradient(
      {arguments.tensor(dx, dx.count, "dx"), arguments.tensor(dy, dx.count, "dy"), arguments.tensor(x, dx.count, "x"),
       arguments.optional(w, width, "w"), arguments.floats(mean, rows, "mean"), arguments.floats(rstd, rows, "rstd"),
       static_cast<std::uint32_t>(width), add},
      rows, dw, db, keep);
}

}  // namespace weft::cuda
