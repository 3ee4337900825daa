#include "layer_ops.hpp"

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include "device_layers.hpp"
#include "layer_calls.hpp"

namespace weft::torch_backend::layer_ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::compute_requires_grad;
using torch::autograd::Function;
using torch::autograd::variable_list;

// --- calls of the ops ---

/// An op of layer_calls.hpp's signature.
template <typename Signature>
c10::TypedOperatorHandle<Signature> op(char const* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

auto const& layer_norm_op() {
  static auto const found = op<decltype(layer_norm)>("weft::layer_norm");
  return found;
}
auto const& layer_norm_gradient_op() {
  static auto const found = op<decltype(layer_norm_gradient)>("weft::layer_norm_gradient");
  return found;
}
auto const& bias_gelu_op() {
  static auto const found = op<decltype(bias_gelu)>("weft::bias_gelu");
  return found;
}
auto const& bias_gelu_gradient_op() {
  static auto const found = op<decltype(bias_gelu_gradient)>("weft::bias_gelu_gradient");
  return found;
}
auto const& bias_dropout_add_op() {
  static auto const found = op<decltype(bias_dropout_add)>("weft::bias_dropout_add");
  return found;
}
auto const& bias_dropout_gradient_op() {
  static auto const found = op<decltype(bias_dropout_gradient)>("weft::bias_dropout_gradient");
  return found;
}

/// What comes after autograd for a call of `op` that has come here with `keys`.
template <typename Op, typename... Arguments>
auto below(Op const& op, c10::DispatchKeySet keys, Arguments const&... arguments) {
  at::AutoDispatchBelowADInplaceOrView const guard;
  return op.redispatch(keys & c10::after_ADInplaceOrView_keyset, arguments...);
}

// --- gradients ---

/// A parameter's gradient, which ops return in f32. Where its type is that, nothing is called.
at::Tensor of_type(at::Tensor const& gradient, at::ScalarType type) {
  return gradient.scalar_type() == type ? gradient : gradient.to(type);
}
/// The same for a parameter that is kept; none where it is absent.
at::Tensor for_parameter(at::Tensor const& gradient, at::Tensor const& parameter) {
  return parameter.defined() ? of_type(gradient, parameter.scalar_type()) : at::Tensor();
}

/// A bias that backward does not read, of which only the type is kept.
void keep_bias_type(AutogradContext& context, OptionalTensor const& bias) {
  if (bias) context.saved_data["bias"] = static_cast<std::int64_t>(bias->scalar_type());
}
at::Tensor for_bias(at::Tensor const& gradient, AutogradContext const& context) {
  auto const type = context.saved_data.find("bias");
  if (type == context.saved_data.end()) return {};
  return of_type(gradient, static_cast<at::ScalarType>(type->second.toInt()));
}

OptionalTensor optional(at::Tensor const& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

/// What tensor is to come where there may be none.
at::Tensor tensor(OptionalTensor const& tensor) {
  return tensor.value_or(at::Tensor());
}

// `mean` and `rstd` are for backward alone: past autograd's eyes, so that it neither records them nor makes zeros for
// their gradients. (Of mark_non_differentiable(), which would say the same, compiled autograd knows nothing.)
struct LayerNorm : Function<LayerNorm> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* context, c10::DispatchKeySet keys, at::Tensor const& x,
                            OptionalTensor const& weight, OptionalTensor const& bias, double eps, at::Tensor* mean,
                            at::Tensor* rstd) {
    at::Tensor y;
    std::tie(y, *mean, *rstd) = below(layer_norm_op(), keys, x, weight, bias, eps);
    context->set_materialize_grads(false);
    context->save_for_backward({x, *mean, *rstd, tensor(weight)});
    keep_bias_type(*context, bias);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list const& dy) {
    if (!dy[0].defined()) return variable_list(7);
    auto const kept = context->get_saved_variables();
    auto const [dx, dweight, dbias] =
        layer_norm_gradient_op().call(dy[0], kept[0], kept[1], kept[2], optional(kept[3]));
    variable_list gradients(7);
    gradients[1] = dx;
    gradients[2] = for_parameter(dweight, kept[3]);
    gradients[3] = for_bias(dbias, *context);
    return gradients;
  }
};

struct BiasGelu : Function<BiasGelu> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* context, c10::DispatchKeySet keys, at::Tensor const& x,
                            OptionalTensor const& bias, std::string const& form) {
    context->set_materialize_grads(false);
    context->save_for_backward({x, tensor(bias)});
    context->saved_data["form"] = form;
    return below(bias_gelu_op(), keys, x, bias, form);
  }

  static variable_list backward(AutogradContext* context, variable_list const& dy) {
    if (!dy[0].defined()) return variable_list(4);
    auto const kept = context->get_saved_variables();
    auto const& form = context->saved_data["form"].toStringRef();
    auto const [dx, dbias] = bias_gelu_gradient_op().call(dy[0], kept[0], optional(kept[1]), form);
    return {at::Tensor(), dx, for_parameter(dbias, kept[1]), at::Tensor()};
  }
};

struct BiasDropoutAdd : Function<BiasDropoutAdd> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* context, c10::DispatchKeySet keys, at::Tensor const& x,
                            OptionalTensor const& bias, at::Tensor const& residual, at::Tensor const& seed, double p) {
    context->set_materialize_grads(false);
    context->save_for_backward({seed});
    keep_bias_type(*context, bias);
    context->saved_data["p"] = p;
    return below(bias_dropout_add_op(), keys, x, bias, residual, seed, p);
  }

  static variable_list backward(AutogradContext* context, variable_list const& dy) {
    if (!dy[0].defined()) return variable_list(6);
    auto const kept = context->get_saved_variables();
    auto const [dx, dbias] = bias_dropout_gradient_op().call(dy[0], kept[0], context->saved_data["p"].toDouble());
    return {at::Tensor(), dx, for_bias(dbias, *context), dy[0], at::Tensor(), at::Tensor()};
  }
};

/// A gradient that depends on `tensors`, and refuses to be differentiated by them.
struct LastGradient : Function<LastGradient> {
  static constexpr bool is_traceable = true;

  template <typename Compute, typename... Tensors>
  static variable_list forward(AutogradContext* /*context*/, Compute const& compute, Tensors const&... /*tensors*/) {
    return std::apply([](auto const&... results) { return variable_list{results...}; }, compute());
  }

  static variable_list backward(AutogradContext* /*context*/, variable_list const& /*dy*/) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "weft.layers: fused layers have no second derivatives; take torch's own (weft.unpatch(model))");
  }
};

// --- what comes first: recording for autograd, where somebody wants gradients ---

ThreeTensors record_layer_norm(c10::DispatchKeySet keys, at::Tensor const& x, OptionalTensor const& weight,
                               OptionalTensor const& bias, double eps) {
  if (!compute_requires_grad(x, weight, bias)) return below(layer_norm_op(), keys, x, weight, bias, eps);
  at::Tensor mean;
  at::Tensor rstd;
  auto const y = LayerNorm::apply(keys, x, weight, bias, eps, &mean, &rstd);
  return {y, mean, rstd};
}

at::Tensor record_bias_gelu(c10::DispatchKeySet keys, at::Tensor const& x, OptionalTensor const& bias,
                            std::string const& form) {
  if (!compute_requires_grad(x, bias)) return below(bias_gelu_op(), keys, x, bias, form);
  return BiasGelu::apply(keys, x, bias, form);
}

at::Tensor record_bias_dropout_add(c10::DispatchKeySet keys, at::Tensor const& x, OptionalTensor const& bias,
                                   at::Tensor const& residual, at::Tensor const& seed, double p) {
  if (!compute_requires_grad(x, bias, residual)) return below(bias_dropout_add_op(), keys, x, bias, residual, seed, p);
  return BiasDropoutAdd::apply(keys, x, bias, residual, seed, p);
}

ThreeTensors record_layer_norm_gradient(c10::DispatchKeySet keys, at::Tensor const& dy, at::Tensor const& x,
                                        at::Tensor const& mean, at::Tensor const& rstd, OptionalTensor const& weight) {
  auto const compute = [&] { return below(layer_norm_gradient_op(), keys, dy, x, mean, rstd, weight); };
  if (!compute_requires_grad(dy, x, mean, rstd, weight)) return compute();
  auto const made = LastGradient::apply(compute, dy, x, mean, rstd, weight);
  return {made[0], made[1], made[2]};
}

TwoTensors record_bias_gelu_gradient(c10::DispatchKeySet keys, at::Tensor const& dy, at::Tensor const& x,
                                     OptionalTensor const& bias, std::string const& form) {
  auto const compute = [&] { return below(bias_gelu_gradient_op(), keys, dy, x, bias, form); };
  if (!compute_requires_grad(dy, x, bias)) return compute();
  auto const made = LastGradient::apply(compute, dy, x, bias);
  return {made[0], made[1]};
}

TwoTensors record_bias_dropout_gradient(c10::DispatchKeySet keys, at::Tensor const& dy, at::Tensor const& seed,
                                        double p) {
  auto const compute = [&] { return below(bias_dropout_gradient_op(), keys, dy, seed, p); };
  if (!compute_requires_grad(dy)) return compute();
  auto const made = LastGradient::apply(compute, dy);
  return {made[0], made[1]};
}

// --- what comes last: computing ---

double whole(double number) {
  return number;
}
std::string const& whole(std::string const& text) {
  return text;
}
at::Tensor whole(at::Tensor const& tensor) {
  return tensor.contiguous();
}
OptionalTensor whole(OptionalTensor const& tensor) {
  return tensor ? OptionalTensor(tensor->contiguous()) : std::nullopt;
}

/// `compute` of tensors with any strides.
template <auto compute, typename Signature = std::remove_pointer_t<decltype(compute)>>
struct OfAnyStrides;
template <auto compute, typename Result, typename... Arguments>
struct OfAnyStrides<compute, Result(Arguments...)> {
  static Result call(Arguments... arguments) { return compute(whole(arguments)...); }
};

#if !WEFT_TORCH_CUDA_TRAINING
void refuse(c10::OperatorHandle const& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "weft.layers: device_", op.schema().name().substr(std::string_view("weft::").size()),
      ": this build of weft has no kernels for GPUs. Build it where nvcc and nccl.h are (pip install "
      "--no-build-isolation -C cmake.define.WEFT_CUDA=ON ./python/weft), or take torch's own layers there");
}
#endif

}  // namespace

TORCH_LIBRARY_FRAGMENT(weft, library) {
  library.set_python_module("weft.layers");  // has what each returns without computing it
  library.def("layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_gradient(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor? weight) -> (Tensor, Tensor, Tensor)");
  library.def("bias_gelu(Tensor x, Tensor? bias, str form) -> Tensor");
  library.def("bias_gelu_gradient(Tensor dy, Tensor x, Tensor? bias, str form) -> (Tensor, Tensor)");
  library.def("bias_dropout_add(Tensor x, Tensor? bias, Tensor residual, Tensor seed, float p) -> Tensor");
  library.def("bias_dropout_gradient(Tensor dy, Tensor seed, float p) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(weft, Autograd, library) {
  library.impl("layer_norm", TORCH_FN(record_layer_norm));
  library.impl("layer_norm_gradient", TORCH_FN(record_layer_norm_gradient));
  library.impl("bias_gelu", TORCH_FN(record_bias_gelu));
  library.impl("bias_gelu_gradient", TORCH_FN(record_bias_gelu_gradient));
  library.impl("bias_dropout_add", TORCH_FN(record_bias_dropout_add));
  library.impl("bias_dropout_gradient", TORCH_FN(record_bias_dropout_gradient));
}

TORCH_LIBRARY_IMPL(weft, CPU, library) {
  library.impl("layer_norm", TORCH_FN(OfAnyStrides<&layer_norm>::call));
  library.impl("layer_norm_gradient", TORCH_FN(OfAnyStrides<&layer_norm_gradient>::call));
  library.impl("bias_gelu", TORCH_FN(OfAnyStrides<&bias_gelu>::call));
  library.impl("bias_gelu_gradient", TORCH_FN(OfAnyStrides<&bias_gelu_gradient>::call));
  library.impl("bias_dropout_add", TORCH_FN(OfAnyStrides<&bias_dropout_add>::call));
  library.impl("bias_dropout_gradient", TORCH_FN(OfAnyStrides<&bias_dropout_gradient>::call));
}

TORCH_LIBRARY_IMPL(weft, CUDA, library) {
#if WEFT_TORCH_CUDA_TRAINING
  namespace gpu = device_layers;
  library.impl("layer_norm", TORCH_FN(OfAnyStrides<&gpu::layer_norm>::call));
  library.impl("layer_norm_gradient", TORCH_FN(OfAnyStrides<&gpu::layer_norm_gradient>::call));
  library.impl("bias_gelu", TORCH_FN(OfAnyStrides<&gpu::bias_gelu>::call));
  library.impl("bias_gelu_gradient", TORCH_FN(OfAnyStrides<&gpu::bias_gelu_gradient>::call));
  library.impl("bias_dropout_add", TORCH_FN(OfAnyStrides<&gpu::bias_dropout_add>::call));
  library.impl("bias_dropout_gradient", TORCH_FN(OfAnyStrides<&gpu::bias_dropout_gradient>::call));
#else
  for (auto const* name : {"layer_norm", "layer_norm_gradient", "bias_gelu", "bias_gelu_gradient", "bias_dropout_add",
                           "bias_dropout_gradient"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
#endif
}

}  // namespace weft::torch_backend::layer_ops

namespace weft::torch_backend {

bool has_device_layers() noexcept {
  return WEFT_TORCH_CUDA_TRAINING != 0;
}

}  // namespace weft::torch_backend
