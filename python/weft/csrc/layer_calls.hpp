#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include <ATen/core/Tensor.h>

/// weft/cpu_layers.hpp on torch's tensors and threads. Matrices are contiguous CPU tensors of float32, bfloat16 or
/// float16 whose last dimension is a row; all matrices of a call have one type and shape. Weights and biases have any
/// of the three types, or are absent. How rows are divided among threads depends on the matrix's size alone, so results
/// do not depend on the number of threads.
/// @throws c10::Error naming the call and the tensor, before anything is written.
namespace weft::torch_backend {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using OptionalTensor = std::optional<at::Tensor>;

/// Returns y and, for backward, each row's mean and rstd.
ThreeTensors layer_norm(at::Tensor const& x, OptionalTensor const& weight, OptionalTensor const& bias, double eps);
/// dx; dweight and dbias in f32.
ThreeTensors layer_norm_gradient(at::Tensor const& dy, at::Tensor const& x, at::Tensor const& mean,
                                 at::Tensor const& rstd, OptionalTensor const& weight);

/// `form`: none (by erf), tanh or quick.
at::Tensor bias_gelu(at::Tensor const& x, OptionalTensor const& bias, std::string const& form);
/// dx; dbias in f32.
TwoTensors bias_gelu_gradient(at::Tensor const& dy, at::Tensor const& x, OptionalTensor const& bias,
                              std::string const& form);

/// `seed`: one int64.
at::Tensor bias_dropout_add(at::Tensor const& x, OptionalTensor const& bias, at::Tensor const& residual,
                            at::Tensor const& seed, double p);
/// dx; dbias in f32.
TwoTensors bias_dropout_gradient(at::Tensor const& dy, at::Tensor const& seed, double p);

}  // namespace weft::torch_backend
