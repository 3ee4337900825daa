#include "device_layers.hpp"

#if defined(WEFT_TORCH_CUDA_TRAINING) && WEFT_TORCH_CUDA_TRAINING
#include <string>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "device.hpp"
#include "sharded_model.hpp"
#include "weft/cuda_layers.hpp"

namespace weft::torch_backend::device_layers {
namespace {

/// A call's tensors, checked, and the layers that compute it.
class Call {
 public:
  /// @param matrix one of the call's, whose last dimension is a row
  Call(char const* name, at::Tensor const& matrix) : name_(name), device_(matrix.device()) {
    TORCH_CHECK_VALUE(device_.is_cuda(), "weft::", name_, ": the matrix is on ", device_,
                      ", others are on a GPU; all must be on one device");
    TORCH_CHECK_VALUE(matrix.dim() > 0 && matrix.size(-1) > 0, "weft::", name_, ": a matrix of shape ", matrix.sizes(),
                      " has no columns");
    width_ = matrix.size(-1);
    rows_ = matrix.numel() / width_;
  }

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t width() const noexcept { return width_; }

  [[nodiscard]] BufferView matrix(at::Tensor const& tensor, char const* name) const {
    TORCH_CHECK_VALUE(tensor.numel() == rows_ * width_, "weft::", name_, ": ", name, " has shape ", tensor.sizes(),
                      "; it must have the input's");
    return view_of(tensor, type_of(tensor, name), name);
  }
  /// A weight or bias; an empty view where there is none.
  [[nodiscard]] ConstBufferView vector(OptionalTensor const& tensor, char const* name) const {
    if (!tensor) return {};
    TORCH_CHECK_VALUE(tensor->dim() == 1 && tensor->size(0) == width_ && tensor->device() == device_, "weft::", name_,
                      ": ", name, " has shape ", tensor->sizes(), " on ", tensor->device(), "; it must have ", width_,
                      " elements, on ", device_);
    return view_of(*tensor, type_of(*tensor, name), name);
  }
  [[nodiscard]] BufferView column(at::Tensor const& tensor, char const* name) const {
    TORCH_CHECK_VALUE(tensor.numel() == rows_ && tensor.scalar_type() == at::kFloat, "weft::", name_, ": ", name,
                      " has shape ", tensor.sizes(), "; it must be ", rows_, " float32");
    return view_of(tensor, DataType::f32, name);
  }
  /// A sum over rows.
  [[nodiscard]] static BufferView sum(at::Tensor const& vector) {
    return {vector.mutable_data_ptr(), static_cast<std::size_t>(vector.numel()), DataType::f32,
            weft_device(vector.device())};
  }
  /// Read when it runs, so that replays of a graph draw anew.
  [[nodiscard]] cuda::Dropout dropout(at::Tensor const& seed, double p) const {
    TORCH_CHECK_VALUE(seed.numel() == 1 && seed.scalar_type() == at::kLong && seed.device() == device_, "weft::", name_,
                      ": the seed is ", seed.numel(), " ", seed.scalar_type(), " on ", seed.device(),
                      "; it must be one int64 on ", device_);
    return {p, 0, view_of(seed, DataType::i64, "seed")};
  }

  /// As many new f32 on the device.
  [[nodiscard]] at::Tensor floats(std::int64_t count) const {
    return at::empty({count}, at::TensorOptions(at::kFloat).device(device_));
  }

  /// body(layers) on the current stream, for what sums nothing over rows.
  template <typename Body>
  void run(Body const& body) const {
    run_with({}, {}, body);
  }
  /// The same with memory for sums, which torch takes back in the stream's order.
  template <typename Body>
  void run_summing(Body const& body) const {
    cuda::Layers::Limits const limits{static_cast<std::size_t>(rows_), static_cast<std::size_t>(width_)};
    auto const scratch = floats(static_cast<std::int64_t>(cuda::Layers::scratch_count(limits)));
    run_with(limits, sum(scratch), body);
  }

 private:
  template <typename Body>
  void run_with(cuda::Layers::Limits const& limits, BufferView scratch, Body const& body) const {
    as_torch([&] {
      cuda::Layers layers(current_stream(device_), limits, scratch);
      body(layers);
    });
  }

  [[nodiscard]] DataType type_of(at::Tensor const& tensor, char const* name) const {
    switch (tensor.scalar_type()) {
      case at::kFloat: return DataType::f32;
      case at::kBFloat16: return DataType::bf16;
      case at::kHalf: return DataType::f16;
      default: break;
    }
    TORCH_CHECK_TYPE(false, "weft::", name_, ": ", name, " is ", tensor.scalar_type(),
                     "; weft's layers take float32, bfloat16 and float16");
  }
  [[nodiscard]] BufferView view_of(at::Tensor const& tensor, DataType type, char const* name) const {
    TORCH_CHECK_VALUE(tensor.device() == device_ && tensor.is_contiguous(), "weft::", name_, ": ", name, " is on ",
                      tensor.device(), " with strides ", tensor.strides(), "; it must be contiguous and on ", device_);
    return {tensor.mutable_data_ptr(), static_cast<std::size_t>(tensor.numel()), type, weft_device(device_)};
  }

  char const* name_;
  c10::Device device_;
  std::int64_t width_ = 0, rows_ = 0;
};

/// A form of GELU, as layers.py names it.
struct GeluCalls {
  char const* name;
  void (cuda::Layers::*value)(BufferView, ConstBufferView, ConstBufferView, std::size_t);
  void (cuda::Layers::*gradient)(BufferView, BufferView, ConstBufferView, ConstBufferView, ConstBufferView, float);
};

GeluCalls gelu_of(std::string const& form) {
  using cuda::Layers;
  if (form == "none") return {"bias_gelu", &Layers::bias_erf_gelu, &Layers::bias_erf_gelu_gradient};
  if (form == "quick") return {"bias_quick_gelu", &Layers::bias_quick_gelu, &Layers::bias_quick_gelu_gradient};
  TORCH_CHECK_VALUE(form == "tanh", "weft::bias_gelu: approximate is ", form, "; it must be none, tanh or quick");
  return {"bias_gelu", &Layers::bias_gelu, &Layers::bias_gelu_gradient};
}

/// New, and contiguous as what ops are given; empty_like() would first ask how that lies.
at::Tensor like(at::Tensor const& matrix) {
  return at::empty(matrix.sizes(), matrix.options());
}

}  // namespace

ThreeTensors layer_norm(at::Tensor const& x, OptionalTensor const& weight, OptionalTensor const& bias, double eps) {
  Call const call("layer_norm", x);
  auto const in = call.matrix(x, "x");
  auto const w = call.vector(weight, "weight");
  auto const b = call.vector(bias, "bias");
  auto const y = like(x);
  auto const mean = call.floats(call.rows());
  auto const rstd = call.floats(call.rows());
  call.run([&](cuda::Layers& layers) {
    layers.layer_norm(call.matrix(y, "y"), call.column(mean, "mean"), call.column(rstd, "rstd"), in, w, b,
                      static_cast<float>(eps));
  });
  return {y, mean, rstd};
}

ThreeTensors layer_norm_gradient(at::Tensor const& dy, at::Tensor const& x, at::Tensor const& mean,
                                 at::Tensor const& rstd, OptionalTensor const& weight) {
  Call const call("layer_norm_gradient", x);
  auto const in = call.matrix(x, "x");
  auto const gradient = call.matrix(dy, "dy");
  auto const means = call.column(mean, "mean");
  auto const rstds = call.column(rstd, "rstd");
  auto const w = call.vector(weight, "weight");
  auto const dx = like(x);
  auto const dweight = call.floats(call.width());
  auto const dbias = call.floats(call.width());
  call.run_summing([&](cuda::Layers& layers) {
    layers.layer_norm_gradient(call.matrix(dx, "dx"), Call::sum(dweight), Call::sum(dbias), gradient, in, means, rstds,
                               w, 0, false);
  });
  return {dx, dweight, dbias};
}

at::Tensor bias_gelu(at::Tensor const& x, OptionalTensor const& bias, std::string const& form) {
  auto const gelu = gelu_of(form);
  Call const call(gelu.name, x);
  auto const in = call.matrix(x, "x");
  auto const b = call.vector(bias, "bias");
  auto const y = like(x);
  call.run([&](cuda::Layers& layers) {
    (layers.*gelu.value)(call.matrix(y, "y"), in, b, static_cast<std::size_t>(call.width()));
  });
  return y;
}

TwoTensors bias_gelu_gradient(at::Tensor const& dy, at::Tensor const& x, OptionalTensor const& bias,
                              std::string const& form) {
  auto const gelu = gelu_of(form);
  Call const call(gelu.name, x);
  auto const in = call.matrix(x, "x");
  auto const gradient = call.matrix(dy, "dy");
  auto const b = call.vector(bias, "bias");
  auto const dx = like(x);
  auto const dbias = call.floats(call.width());
  call.run_summing([&](cuda::Layers& layers) {
    (layers.*gelu.gradient)(call.matrix(dx, "dx"), Call::sum(dbias), gradient, in, b, 0);
  });
  return {dx, dbias};
}

at::Tensor bias_dropout_add(at::Tensor const& x, OptionalTensor const& bias, at::Tensor const& residual,
                            at::Tensor const& seed, double p) {
  Call const call("bias_dropout_add", x);
  auto const in = call.matrix(x, "x");
  auto const b = call.vector(bias, "bias");
  auto const beside = call.matrix(residual, "residual");
  auto const dropout = call.dropout(seed, p);
  auto const y = like(x);
  call.run([&](cuda::Layers& layers) {
    layers.bias_dropout_add(call.matrix(y, "y"), in, b, beside, dropout, static_cast<std::size_t>(call.width()));
  });
  return y;
}

TwoTensors bias_dropout_gradient(at::Tensor const& dy, at::Tensor const& seed, double p) {
  Call const call("bias_dropout_gradient", dy);
  auto const gradient = call.matrix(dy, "dy");
  auto const dropout = call.dropout(seed, p);
  auto const dx = like(dy);
  auto const dbias = call.floats(call.width());
  call.run_summing([&](cuda::Layers& layers) {
    layers.bias_dropout_gradient(call.matrix(dx, "dx"), Call::sum(dbias), gradient, dropout, 0);
  });
  return {dx, dbias};
}

}  // namespace weft::torch_backend::device_layers
#endif
