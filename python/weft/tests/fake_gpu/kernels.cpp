// Operators on the fake GPU: the CPU's, on the same memory, when their turn on the current stream comes.
#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include "cuda/fake/fake_gpu.hpp"
#include "device.hpp"

namespace weft::test {
namespace {

using torch::jit::Stack;

at::Tensor on_host(at::Tensor const& tensor) {
  return tensor.defined() && tensor.is_cuda() ? host_view(tensor) : tensor;
}

c10::IValue on_host(c10::IValue const& value) {
  if (value.isTensor()) return on_host(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (at::Tensor const& tensor : value.toTensorList()) tensors.push_back(on_host(tensor));
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (std::optional<at::Tensor> const& tensor : value.toOptionalTensorList()) {
      tensors.push_back(tensor ? std::optional(on_host(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

at::Tensor on_gpu(at::Tensor const& tensor) {
  if (!tensor.defined()) return tensor;
  auto const made = empty_on_gpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  host_view(made).copy_(tensor);
  return made;
}

c10::IValue on_gpu(c10::IValue const& value) {
  if (value.isTensor()) return on_gpu(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (at::Tensor const& tensor : value.toTensorList()) tensors.push_back(on_gpu(tensor));
    return tensors;
  }
  return value;
}

/// Numbers that operators take as tensors do not count, unless they are written to.
bool touches_host(at::ArrayRef<c10::IValue> arguments) {
  auto const lies_there = [](c10::IValue const& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu();
  };
  return (!arguments.empty() && lies_there(arguments[0])) ||
         std::any_of(arguments.begin(), arguments.end(),
                     [&](c10::IValue const& value) { return lies_there(value) && value.toTensor().dim() > 0; });
}

/// Of operators that write to their first argument and return it.
bool works_in_place(c10::OperatorHandle const& op) {
  auto const& name = op.schema().name();
  return name.back() == '_' && name.find("foreach") == std::string::npos;
}

/// What the host can only know once the GPU has come to it.
bool asks(c10::OperatorHandle const& op) {
  auto const& name = op.schema().name();
  return name == "aten::_local_scalar_dense" || name == "aten::equal";
}

/// Until the stream has come here; a real one's operators would not wait, so this counts as no wait.
void wait_for_turn(cudaStream_t stream) {
  auto const reached = std::make_shared<Signal>(FakeGpu::current().ending());
  static_cast<void>(FakeGpu::current().enqueue(stream, [reached] { reached->set(); }));
  reached->wait();
}

void run(c10::OperatorHandle const& op, Stack* stack) {
  auto const count = op.schema().arguments().size();
  auto const arguments = torch::jit::last(*stack, count);
  int device = 0;
  static_cast<void>(FakeGpu::functions().get_device(&device));
  auto const stream = handle_of(current_stream(static_cast<c10::DeviceIndex>(device)));
  auto call = std::make_shared<Stack>();
  for (auto const& argument : arguments) call->push_back(on_host(argument));
  auto const body = [op, call] {
    at::AutoDispatchBelowADInplaceOrView const below;
    op.callBoxed(*call);
  };
  bool const later = works_in_place(op) && !touches_host(arguments);
  if (later) {
    static_cast<void>(FakeGpu::current().enqueue(stream, body));
  } else {
    if (touches_host(arguments) || asks(op)) {
      static_cast<void>(FakeGpu::functions().stream_synchronize(stream));
    } else {
      wait_for_turn(stream);
    }
    body();
  }
  if (works_in_place(op) || op.schema().name().find("_foreach_") != std::string::npos) {
    auto const first = arguments[0];
    bool const returns = !op.schema().returns().empty();
    torch::jit::drop(*stack, count);
    if (returns) stack->push_back(first);
    return;
  }
  torch::jit::drop(*stack, count);
  for (auto const& result : *call) stack->push_back(on_gpu(result));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> /*device*/, std::optional<bool> /*pin*/,
                 std::optional<at::MemoryFormat> /*format*/) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return empty_on_gpu(sizes, strides, type.value_or(at::kFloat));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                         std::optional<bool> /*pin*/) {
  return empty_on_gpu(sizes, strides, type.value_or(at::kFloat));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  for (auto const* name : {"copy_",
                           "fill_.Scalar",
                           "fill_.Tensor",
                           "zero_",
                           "add_.Tensor",
                           "add.Tensor",
                           "sub.Tensor",
                           "mul_.Tensor",
                           "mul.Tensor",
                           "div_.Tensor",
                           "div.Tensor",
                           "sum",
                           "sum.dim_IntList",
                           "mean",
                           "mm",
                           "addmm",
                           "threshold_backward",
                           "relu",
                           "tanh",
                           "tanh_backward",
                           "pow.Tensor_Scalar",
                           "eq.Tensor",
                           "ne.Tensor",
                           "abs",
                           "max",
                           "cat",
                           "equal",
                           "_local_scalar_dense",
                           "neg",
                           "roll",
                           "split_with_sizes_copy.out",
                           "_foreach_copy_",
                           "addcmul_",
                           "addcdiv_",
                           "sqrt",
                           "lerp_.Scalar",
                           "eq.Scalar",
                           "ne.Scalar",
                           "masked_fill_.Scalar",
                           "reciprocal",
                           "where.self",
                           "maximum.out"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run>());
  }
}

}  // namespace weft::test
