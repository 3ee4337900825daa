#include "weft/cpu_layers.hpp"

#include <fmt/format.h>

#include "kernels/cpu/layers/layers.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using kernels::Activation;
using kernels::MatrixShape;

/// Checks a call's arguments on the way to a kernel.
class Arguments {
 public:
  /// `matrix`: one of those whose type and size count. `width`: elements in a row.
  Arguments(char const* call, ConstBufferView const& matrix, std::size_t width) : call_(call) {
    if (matrix.dtype != DataType::f32 && matrix.dtype != DataType::bf16 && matrix.dtype != DataType::f16) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("cpu::{}: a matrix of {}; takes f32, bf16 and f16", call_, to_string(matrix.dtype)));
    }
    if (width == 0 || matrix.count % width != 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("cpu::{}: {} elements are no rows of {}", call_, matrix.count, width));
    }
    shape_ = {matrix.dtype, matrix.count / width, width};
  }

  [[nodiscard]] MatrixShape const& shape() const noexcept { return shape_; }
  [[nodiscard]] void* matrix(ConstBufferView const& view, char const* name) const {
    return check(view, shape_.rows * shape_.width, shape_.type, name);
  }
  [[nodiscard]] float* vector(ConstBufferView const& view, char const* name) const {
    return static_cast<float*>(check(view, shape_.width, DataType::f32, name));
  }
  /// One f32 for each row.
  [[nodiscard]] float* column(ConstBufferView const& view, char const* name) const {
    return static_cast<float*>(check(view, shape_.rows, DataType::f32, name));
  }

 private:
  void* check(ConstBufferView const& view, std::size_t count, DataType type, char const* name) const {
    if (view.device.type != DeviceType::cpu) {
      throw Error(ErrorCode::unsupported, fmt::format("cpu::{}: {} is on {}", call_, name, to_string(view.device)));
    }
    if (view.count != count || view.dtype != type || (view.data == nullptr && count != 0)) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("cpu::{}: {} is {} {}{}; it must be {} {}", call_, name, view.count, to_string(view.dtype),
                      view.data == nullptr ? " without memory" : "", count, to_string(type)));
    }
    return const_cast<void*>(view.data);  // outputs were given as writable views
  }

  char const* call_;
  MatrixShape shape_;
};

void activation(Activation which, char const* call, BufferView const& y, ConstBufferView const& x,
                ConstBufferView const& b) {
  Arguments const is(call, x, b.count);
  kernels::bias_activation(which, is.matrix(y, "y"), is.matrix(x, "x"), is.vector(b, "b"), is.shape());
}

void activation_gradient(Activation which, char const* call, BufferView const& dx, BufferView const& db,
                         ConstBufferView const& dy, ConstBufferView const& x, ConstBufferView const& b) {
  Arguments const is(call, x, b.count);
  kernels::bias_activation_gradient(which, is.matrix(dx, "dx"), is.matrix(dy, "dy"), is.matrix(x, "x"),
                                    is.vector(b, "b"), is.vector(db, "db"), is.shape());
}

kernels::DropoutChoice choice_of(char const* call, Dropout const& dropout) {
  if (!(dropout.p >= 0 && dropout.p < 1)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("cpu::{}: p is {}; it must be in [0, 1)", call, dropout.p));
  }
  return {dropout.seed, static_cast<std::uint32_t>(dropout.p * 4294967296.0), static_cast<float>(1 / (1 - dropout.p)),
          dropout.first};
}

}  // namespace

void layer_norm(BufferView y, BufferView mean, BufferView rstd, ConstBufferView x, ConstBufferView w, ConstBufferView b,
                float eps) {
  Arguments const is("layer_norm", x, w.count);
  kernels::layer_norm({is.matrix(y, "y"), is.matrix(x, "x"), is.vector(w, "w"), is.vector(b, "b"),
                       is.column(mean, "mean"), is.column(rstd, "rstd")},
                      is.shape(), eps);
}

void layer_norm_gradient(BufferView dx, BufferView dw, BufferView db, ConstBufferView dy, ConstBufferView x,
                         ConstBufferView mean, ConstBufferView rstd, ConstBufferView w) {
  Arguments const is("layer_norm_gradient", x, w.count);
  kernels::layer_norm_gradient(
      {is.matrix(dx, "dx"), is.matrix(dy, "dy"), is.matrix(x, "x"), is.vector(w, "w"), is.column(mean, "mean"),
       is.column(rstd, "rstd"), is.vector(dw, "dw"), is.vector(db, "db")},
      is.shape());
}

void bias_gelu(BufferView y, ConstBufferView x, ConstBufferView b) {
  activation(Activation::gelu, "bias_gelu", y, x, b);
}
void bias_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b) {
  activation_gradient(Activation::gelu, "bias_gelu_gradient", dx, db, dy, x, b);
}

void bias_quick_gelu(BufferView y, ConstBufferView x, ConstBufferView b) {
  activation(Activation::quick_gelu, "bias_quick_gelu", y, x, b);
}
void bias_quick_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b) {
  activation_gradient(Activation::quick_gelu, "bias_quick_gelu_gradient", dx, db, dy, x, b);
}

void bias_erf_gelu(BufferView y, ConstBufferView x, ConstBufferView b) {
  activation(Activation::erf_gelu, "bias_erf_gelu", y, x, b);
}
void bias_erf_gelu_gradient(BufferView dx, BufferView db, ConstBufferView dy, ConstBufferView x, ConstBufferView b) {
  activation_gradient(Activation::erf_gelu, "bias_erf_gelu_gradient", dx, db, dy, x, b);
}

void bias_dropout_add(BufferView y, ConstBufferView x, ConstBufferView b, ConstBufferView residual,
                      Dropout const& dropout) {
  Arguments const is("bias_dropout_add", x, b.count);
  kernels::bias_dropout_add(is.matrix(y, "y"), is.matrix(x, "x"), is.vector(b, "b"), is.matrix(residual, "residual"),
                            choice_of("bias_dropout_add", dropout), is.shape());
}

void bias_dropout_gradient(BufferView dx, BufferView db, ConstBufferView dy, Dropout const& dropout) {
  Arguments const is("bias_dropout_gradient", dy, db.count);
  kernels::bias_dropout_gradient(is.matrix(dx, "dx"), is.matrix(dy, "dy"), is.vector(db, "db"),
                                 choice_of("bias_dropout_gradient", dropout), is.shape());
}

}  // namespace weft::cpu
