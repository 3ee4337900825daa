#pragma once

#include "layer_calls.hpp"

/// The functions of layer_calls.hpp for tensors on a GPU, if the extension was built with Weft's kernels. Arguments and
/// results are the same, all on one GPU, including the seed; a gradient may have another of the types than its matrix.
/// They only enqueue on the device's current stream, and take memory from torch only, so a CUDA graph can record them.
namespace weft::torch_backend::device_layers {

ThreeTensors layer_norm(at::Tensor const& x, OptionalTensor const& weight, OptionalTensor const& bias, double eps);
ThreeTensors layer_norm_gradient(at::Tensor const& dy, at::Tensor const& x, at::Tensor const& mean,
                                 at::Tensor const& rstd, OptionalTensor const& weight);
at::Tensor bias_gelu(at::Tensor const& x, OptionalTensor const& bias, std::string const& form);
TwoTensors bias_gelu_gradient(at::Tensor const& dy, at::Tensor const& x, OptionalTensor const& bias,
                              std::string const& form);
at::Tensor bias_dropout_add(at::Tensor const& x, OptionalTensor const& bias, at::Tensor const& residual,
                            at::Tensor const& seed, double p);
TwoTensors bias_dropout_gradient(at::Tensor const& dy, at::Tensor const& seed, double p);

}  // namespace weft::torch_backend::device_layers
