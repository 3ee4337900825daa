#include <string>

#include "kernels/cuda/adamw.hpp"
#include "runtime/cuda/check.hpp"
#include "weft/cuda.hpp"
#include "weft/error.hpp"

namespace weft::cuda {
namespace {

void require_fit(char const* name, ConstBufferView const& view, std::size_t count, Device device) {
  if (view.dtype == DataType::f32 && view.count == count && view.device == device) return;
  throw Error(ErrorCode::invalid_argument, std::string("cuda::adamw: ") + name + " is " + std::to_string(view.count) +
                                               " " + std::string(to_string(view.dtype)) + " on " +
                                               to_string(view.device) + "; expected " + std::to_string(count) +
                                               " f32 on " + to_string(device));
}

}  // namespace

void adamw(AdamWTensors const& tensors, AdamWOptions const& options, std::int64_t step, Stream const& stream) {
  StreamHandle const handle = handle_of(stream);
  Device const device = stream.device();
  std::size_t const count = tensors.parameter.count;
  require_fit("parameter", tensors.parameter, count, device);
  require_fit("gradient", tensors.gradient, count, device);
  require_fit("exp_avg", tensors.exp_avg, count, device);
  require_fit("exp_avg_sq", tensors.exp_avg_sq, count, device);
  if (options.amsgrad || options.maximize) {
    throw Error(ErrorCode::unsupported, "cuda::adamw: neither amsgrad nor maximize");
  }
  if (step < 1) {
    throw Error(ErrorCode::invalid_argument, "cuda::adamw: step " + std::to_string(step) + "; steps count from 1");
  }
  DeviceGuard const guard(device.index);
  auto const scalars = kernels::adam_scalars(options.lr, options.beta1, options.beta2, options.eps,
                                             options.weight_decay, kernels::Decay::decoupled, step);
  check(
      kernels::cuda::adamw(static_cast<float*>(tensors.parameter.data),
                           static_cast<float const*>(tensors.gradient.data), static_cast<float*>(tensors.exp_avg.data),
                           static_cast<float*>(tensors.exp_avg_sq.data), count, scalars, handle),
      "launch of the AdamW kernel");
}

}  // namespace weft::cuda
