#include <string>

#include "layers/layers_impl.hpp"

namespace weft::cuda {

void Arguments::refuse(ConstBufferView view, char const* name, std::string const& wanted, bool type) const {
  throw Error(type ? ErrorCode::unsupported : ErrorCode::invalid_argument,
              "cuda::Layers::" + std::string(call_) + ": " + name + " is " + std::to_string(view.count) + " " +
                  std::string(to_string(view.dtype)) + " on " + to_string(view.device) + "; it must be " + wanted);
}

void Arguments::check(ConstBufferView view, std::size_t count, char const* name) const {
  if (view.count != count) refuse(view, name, std::to_string(count) + " elements");
  if (view.device != device_) refuse(view, name, "on " + to_string(device_));
  if (view.data == nullptr && count != 0) refuse(view, name, "in memory");
}

kernels::cuda::TensorPointer Arguments::tensor(ConstBufferView view, std::size_t count, char const* name) const {
  check(view, count, name);
  if (view.dtype != DataType::f32 && view.dtype != DataType::bf16 && view.dtype != DataType::f16) {
    refuse(view, name, "f32, bf16 or f16", true);
  }
  return {const_cast<void*>(view.data), view.dtype};
}

kernels::cuda::TensorPointer Arguments::optional(ConstBufferView view, std::size_t count, char const* name) const {
  if (view.data == nullptr && view.count == 0) return {nullptr, DataType::f32};
  return tensor(view, count, name);
}

float* Arguments::floats(ConstBufferView view, std::size_t count, char const* name) const {
  check(view, count, name);
  if (view.dtype != DataType::f32) refuse(view, name, "f32", true);
  return static_cast<float*>(const_cast<void*>(view.data));
}

std::int32_t const* Arguments::ids(ConstBufferView view, std::size_t count, char const* name) const {
  check(view, count, name);
  if (view.dtype != DataType::i32) refuse(view, name, "i32", true);
  return static_cast<std::int32_t const*>(view.data);
}

kernels::cuda::Dropout Arguments::dropout(Dropout const& dropout) const {
  require(dropout.p >= 0 && dropout.p < 1, "p must be in [0, 1)");
  auto choice = kernels::cuda::Dropout::with(dropout.p, dropout.seed, 0, nullptr);
  auto const& at = dropout.seed_at;
  if (at.data == nullptr && at.count == 0) return choice;
  check(at, 1, "seed_at");
  if (at.dtype != DataType::i64 && at.dtype != DataType::u64) refuse(at, "seed_at", "i64 or u64", true);
  choice.seed_at = static_cast<std::uint64_t const*>(at.data);
  return choice;
}

void Arguments::require(bool holds, char const* what) const {
  if (!holds) throw Error(ErrorCode::invalid_argument, "cuda::Layers::" + std::string(call_) + ": " + what);
}

std::size_t Arguments::rows(ConstBufferView view, std::size_t width, char const* name) const {
  if (width == 0 || view.count % width != 0) refuse(view, name, "whole rows of " + std::to_string(width));
  return view.count / width;
}

}  // namespace weft::cuda
