#include "gradient_calls.hpp"

#include <algorithm>
#include <cstdint>

#include <c10/util/Exception.h>

#include "device.hpp"
#include "parallel.hpp"

namespace weft::torch_backend {
namespace {

struct GradientParts {
  std::vector<BufferView> views;
  std::size_t elements = 0;
};

GradientParts parts_of(std::vector<at::Tensor> const& gradients, char const* call) {
  GradientParts parts;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto const whole = gradient_view(gradients[i], i, call);
    parts.elements += whole.count;
    for (std::size_t part = 0; part < part_count(whole.count); ++part) parts.views.push_back(part_of(whole, part));
  }
  return parts;
}

}  // namespace

BufferView gradient_view(at::Tensor const& gradient, std::size_t index, char const* call) {
  TORCH_CHECK_VALUE(gradient.device().is_cpu(), "weft: ", call, ": gradient ", index, " is on ", gradient.device(),
                    "; here weft computes on the CPU, so move its parameter there or take one of torch.optim's");
  return dense_view(gradient, index, call);
}

BufferView dense_view(at::Tensor const& gradient, std::size_t index, char const* call) {
  TORCH_CHECK_VALUE(gradient.layout() == at::kStrided, "weft: ", call, ": gradient ", index, " is not dense (layout ",
                    gradient.layout(), "); make it with sparse=False, or take one of torch.optim's for its parameter");
  TORCH_CHECK_VALUE(gradient.is_non_overlapping_and_dense(), "weft: ", call, ": gradient ", index, " of shape ",
                    gradient.sizes(), " has gaps between its elements (strides ", gradient.strides(),
                    "); pass gradient.contiguous()");
  auto const count = static_cast<std::size_t>(gradient.numel());
  auto const device = weft_device(gradient.device());
  switch (gradient.scalar_type()) {
    case at::kFloat: return {gradient.mutable_data_ptr(), count, DataType::f32, device};
    case at::kBFloat16: return {gradient.mutable_data_ptr(), count, DataType::bf16, device};
    case at::kHalf: return {gradient.mutable_data_ptr(), count, DataType::f16, device};
    default: break;
  }
  TORCH_CHECK_TYPE(false, "weft: ", call, ": gradient ", index, " is ", gradient.scalar_type(),
                   "; weft's optimizers take float32, bfloat16 and float16");
}

std::pair<double, bool> measure_gradients(std::vector<at::Tensor> const& gradients, NormType type, float factor,
                                          char const* call) {
  auto const parts = parts_of(gradients, call);
  std::vector<GradientNorm> norms(parts.views.size());
  for_each_part(parts.views.size(), parts.elements, [&](std::size_t i) {
    norms[i] = gradient_norm({&parts.views[i], 1}, type, factor);
  });
  double all = 0;
  bool finite = true;
  for (auto const& one : norms) {
    finite = finite && one.finite;
    all = type == NormType::l2 ? all + one.norm * one.norm : std::max(all, one.norm);
  }
  return {all, finite};
}

bool scale_gradients(std::vector<at::Tensor> const& gradients, float factor, char const* call) {
  auto const parts = parts_of(gradients, call);
  std::vector<float> found(parts.views.size());
  for_each_part(parts.views.size(), parts.elements, [&](std::size_t i) {
    unscale_and_check({&parts.views[i], 1}, factor, found[i]);
  });
  for (auto const& gradient : gradients) gradient.unsafeGetTensorImpl()->bump_version();
  return std::ranges::all_of(found, [](float one) { return one == 0; });
}

}  // namespace weft::torch_backend
