#include <string>

#include "kernels/cuda/gradients/compress.hpp"
#include "optim/cuda/on_gpu.hpp"
#include "optim/cuda/tensor_list.hpp"
#include "weft/convert.hpp"
#include "weft/cuda.hpp"
#include "weft/error.hpp"

namespace weft::cuda {
namespace {

std::string describe(BufferView const& view) {
  return std::to_string(view.count) + " " + std::string(to_string(view.dtype)) + " on " + to_string(view.device);
}

void check_tensor(BufferView const& view, std::size_t index, Device device, char const* list) {
  auto const refuse = [&](ErrorCode code, char const* allowed) {
    throw Error(code,
                std::string(list) + ": tensor " + std::to_string(index) + " is " + describe(view) + "; " + allowed);
  };
  bool const computable = view.dtype == DataType::f32 || view.dtype == DataType::bf16 || view.dtype == DataType::f16;
  if (!computable || view.device.type != DeviceType::cuda) {
    refuse(ErrorCode::unsupported, "it takes f32, bf16 and f16 on a GPU");
  }
  if (view.device != device) refuse(ErrorCode::invalid_argument, "all must be on one GPU");
  if (view.data == nullptr && view.count != 0) refuse(ErrorCode::invalid_argument, "it has no memory");
}

/// The machine of `tensors`, after checking them.
Gpu machine_of(std::span<BufferView const> tensors, char const* list) {
  if (tensors.empty()) throw Error(ErrorCode::invalid_argument, std::string(list) + ": no tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) check_tensor(tensors[i], i, tensors.front().device, list);
  return Gpu(tensors.front().device.index);
}

float* flag_of(BufferView const& found_inf, Device device, char const* call) {
  if (found_inf.data == nullptr) return nullptr;
  if (found_inf.count == 1 && found_inf.dtype == DataType::f32 && found_inf.device == device) {
    return static_cast<float*>(found_inf.data);
  }
  throw Error(ErrorCode::invalid_argument, std::string(call) + ": found_inf is " + describe(found_inf) +
                                               "; it must be 1 f32 on " + to_string(device));
}

kernels::cuda::Scalar scalar_at(float const* at) {
  return {1, at};
}

}  // namespace

class GradientList::Impl : public MeasuredTensors<Gpu> {
 public:
  explicit Impl(std::span<BufferView const> gradients)
      : MeasuredTensors(machine_of(gradients, "GradientList"), gradients) {
    for (auto const& gradient : gradients) counts_.push_back(gradient.count);
  }

  void replace(std::span<BufferView const> gradients, Stream const& stream) {
    if (gradients.size() != counts_.size()) {
      throw Error(ErrorCode::invalid_argument, "GradientList::replace: " + std::to_string(gradients.size()) +
                                                   " tensors for " + std::to_string(counts_.size()));
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      check_tensor(gradients[i], i, machine().device(), "GradientList::replace");
      if (gradients[i].count == counts_[i]) continue;
      throw Error(ErrorCode::invalid_argument, "GradientList::replace: tensor " + std::to_string(i) + " is " +
                                                   describe(gradients[i]) + ", it had " + std::to_string(counts_[i]) +
                                                   " elements");
    }
    MeasuredTensors::replace(gradients, &stream);
  }

 private:
  std::vector<std::size_t> counts_;
};

GradientList::GradientList(std::span<BufferView const> gradients) : impl_(std::make_unique<Impl>(gradients)) {}
GradientList::~GradientList() = default;
GradientList::GradientList(GradientList&&) noexcept = default;
GradientList& GradientList::operator=(GradientList&&) noexcept = default;

void GradientList::replace(std::span<BufferView const> gradients, Stream const& stream) {
  impl_->replace(gradients, stream);
}
void GradientList::measure(MeasureOptions const& options, Stream const& stream) {
  impl_->measure({.factor = scalar_at(options.inv_scale),
                  .largest = options.type == NormType::inf,
                  .max_norm = options.max_norm,
                  .found_inf = flag_of(options.found_inf, impl_->machine().device(), "GradientList::measure")},
                 &stream);
}
float const* GradientList::norm() const noexcept {
  return &impl_->whole()->norm_f32;
}
float const* GradientList::clip() const noexcept {
  return &impl_->whole()->clip;
}
GradientNorm GradientList::read_norm() const {
  auto const whole = download<kernels::cuda::MeasuredList>(impl_->machine(), impl_->whole());
  return {whole.norm, whole.not_finite == 0};
}
void GradientList::unscale_and_check(float const* inv_scale, BufferView found_inf, Stream const& stream) {
  auto* const flag = flag_of(found_inf, impl_->machine().device(), "GradientList::unscale_and_check");
  if (flag == nullptr) {
    throw Error(ErrorCode::invalid_argument, "GradientList::unscale_and_check: found_inf is empty");
  }
  impl_->map(kernels::cuda::ScaleAndCheckOp{{scalar_at(inv_scale)}}, flag, &stream);
}
void GradientList::scale(float const* factor, Stream const& stream) {
  impl_->map(kernels::cuda::ScaleOp{scalar_at(factor)}, nullptr, &stream);
}
void GradientList::clamp(float limit, Stream const& stream) {
  impl_->map(kernels::cuda::ClampOp{limit}, nullptr, &stream);
}

class CopyList::Impl : public TensorList<Gpu> {
 public:
  Impl(std::span<BufferView const> from, std::span<BufferView const> to)
      : TensorList(machine_of(from, "CopyList"), from, {}, to) {}
};

CopyList::CopyList(std::span<BufferView const> from, std::span<BufferView const> to) {
  if (from.size() != to.size()) {
    throw Error(ErrorCode::invalid_argument,
                "CopyList: " + std::to_string(from.size()) + " tensors from, " + std::to_string(to.size()) + " to");
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    check_tensor(to[i], i, from.front().device, "CopyList");
    if (from[i].count != to[i].count) {
      throw Error(ErrorCode::invalid_argument, "CopyList: tensor " + std::to_string(i) + " is " + describe(from[i]) +
                                                   ", and where it goes " + describe(to[i]));
    }
  }
  impl_ = std::make_unique<Impl>(from, to);
}
CopyList::~CopyList() = default;
CopyList::CopyList(CopyList&&) noexcept = default;
CopyList& CopyList::operator=(CopyList&&) noexcept = default;

void CopyList::run(Stream const& stream, float factor) {
  impl_->map(kernels::cuda::ScaleOp{{factor, nullptr}}, nullptr, &stream);
}

// The functions of weft/gradients.hpp and weft/convert.hpp. Work enqueued on any stream may concern their tensors, so
// they wait for the device, work on its legacy default stream, and wait again.

namespace on_gpu {

NormParts measure_parts(std::span<BufferView const> gradients, NormType type, float factor) {
  MeasuredTensors<Gpu> const list(machine_of(gradients, "gradient_norm"), gradients);
  list.machine().synchronize();
  list.measure({.factor = {factor, nullptr}, .largest = type == NormType::inf}, nullptr);
  auto const whole = download<kernels::cuda::MeasuredList>(list.machine(), list.whole());
  return {type == NormType::l2 ? whole.squares : whole.norm, whole.not_finite != 0 ? 1.0 : 0.0};
}

void scale(std::span<BufferView const> gradients, float factor) {
  TensorList<Gpu> const list(machine_of(gradients, "clip_grad_norm"), gradients);
  list.machine().synchronize();
  list.map(kernels::cuda::ScaleOp{{factor, nullptr}}, nullptr, nullptr);
  list.machine().synchronize();
}

void clamp(std::span<BufferView const> gradients, float limit) {
  TensorList<Gpu> const list(machine_of(gradients, "clip_grad_value"), gradients);
  list.machine().synchronize();
  list.map(kernels::cuda::ClampOp{limit}, nullptr, nullptr);
  list.machine().synchronize();
}

namespace {

// Copies between host and GPU without changing the GPU's type; types are converted on the host.
void convert_across(BufferView const& from, BufferView const& to) {
  bool const up = to.device.type == DeviceType::cuda;
  BufferView const& there = up ? to : from;
  check_tensor(there, 0, there.device, "convert");
  Buffer const copy = Buffer::host(there.count, there.dtype);
  Gpu const machine(there.device.index);
  if (!up) machine.read(copy.data(), from.data, from.bytes());
  weft::convert(up ? from : copy.view(), up ? copy.view() : to);
  if (up) machine.write(to.data, copy.data(), to.bytes());
}

}  // namespace

void unscale_and_check(std::span<BufferView const> gradients, float inv_scale, float& found_inf) {
  TensorList<Gpu> const list(machine_of(gradients, "unscale_and_check"), gradients);
  Buffer const flag = list.machine().allocate(sizeof(float));
  list.machine().synchronize();
  list.map(kernels::cuda::ScaleAndCheckOp{{{inv_scale, nullptr}}}, static_cast<float*>(flag.data()), nullptr);
  if (download<float>(list.machine(), flag.data()) != 0) found_inf = 1;
}

void convert(BufferView from, BufferView to) {
  if (from.device.type != to.device.type) return convert_across(from, to);
  CopyList list({&from, 1}, {&to, 1});
  Gpu const machine(from.device.index);
  machine.synchronize();
  list.run(wrap_stream(nullptr, from.device.index));
  machine.synchronize();
}

namespace {

std::size_t blocks_of(BufferView const& view) {
  return (view.count + kernels::cuda::kChunk - 1) / kernels::cuda::kChunk;
}

}  // namespace

void convert(BufferView const& from, BufferView const& to, Stream const& stream) {
  kernels::cuda::ConvertBody const body{{from.data, from.dtype}, {to.data, to.dtype}, from.count};
  Gpu(from.device.index).launch(body, blocks_of(from), &stream);
}

void add(BufferView const& from, BufferView const& to, Stream const& stream) {
  kernels::cuda::AddBody const body{{from.data, from.dtype}, {to.data, to.dtype}, from.count};
  Gpu(from.device.index).launch(body, blocks_of(from), &stream);
}

void compress_with_feedback(BufferView const& gradient, BufferView const& residual, BufferView const& wire,
                            Stream const& stream) {
  kernels::cuda::CompressBody const body{static_cast<float const*>(gradient.data),
                                         static_cast<float*>(residual.data),
                                         {wire.data, wire.dtype},
                                         gradient.count};
  Gpu(gradient.device.index).launch(body, blocks_of(gradient), &stream);
}

}  // namespace on_gpu
}  // namespace weft::cuda
