#pragma once

#include <span>

#include "kernels/cuda/gradients/judge.hpp"
#include "optim/cuda/tensor_list.hpp"
#include "optim/device_norm.hpp"

namespace weft::cuda {

/// A DeviceNorm in a machine's memory: two launches for what is looked at, one each to combine and to judge.
template <typename Machine>
class ShardNorm final : public DeviceNorm, private TensorList<Machine> {
 public:
  ShardNorm(Machine machine, std::span<BufferView const> tensors)
      : TensorList<Machine>(machine, tensors),
        of_chunk_(machine.allocate(this->chunk_count() * sizeof(kernels::cuda::Measured))),
        of_tensor_(machine.allocate(tensors.size() * sizeof(kernels::cuda::Measured))),
        ranges_(upload(machine, this->ranges())),
        numbers_(machine.allocate(sizeof(kernels::cuda::NormNumbers))),
        verdict_(machine.allocate(sizeof(kernels::cuda::Verdict))) {}

  void look_at(std::size_t first, std::size_t count, float const* factor, Stream const& stream) override {
    if (count == 0) return;
    auto const& from = this->ranges()[first];
    auto const& last = this->ranges()[first + count - 1];
    auto* const of_chunk = static_cast<kernels::cuda::Measured*>(of_chunk_.data());
    kernels::cuda::MeasureChunksBody const chunks{
        this->tensors(), this->chunks() + from.first, {1, factor}, of_chunk + from.first};
    this->machine().launch(chunks, last.first + last.count - from.first, &stream);
    kernels::cuda::MeasureRangesBody const ranges{
        of_chunk, static_cast<kernels::cuda::PartRange const*>(ranges_.data()) + first, of_tensor() + first};
    this->machine().launch(ranges, count, &stream);
  }
  void combine(NormType type, float const* found_inf, Stream const& stream) override {
    kernels::cuda::CombinePartsBody const body{of_tensor(), static_cast<std::uint32_t>(this->ranges().size()),
                                               type == NormType::inf, found_inf, in_numbers()};
    this->machine().launch(body, 1, &stream);
  }
  [[nodiscard]] BufferView numbers() const noexcept override {
    return {numbers_.data(), sizeof(kernels::cuda::NormNumbers) / sizeof(double), DataType::f64,
            this->machine().device()};
  }
  void judge(Judgement const& how, Stream const& stream) override {
    kernels::cuda::JudgeBody const body{
        in_numbers(), how.type == NormType::inf, how.max_norm, how.factor, how.found_inf,
        verdict(),    how.also_found_inf};
    this->machine().launch(body, 1, &stream);
  }
  [[nodiscard]] float const* clip() const noexcept override { return &verdict()->clip; }
  [[nodiscard]] float const* found_inf() const noexcept override { return &verdict()->found_inf; }
  [[nodiscard]] GradientNorm read() const override {
    auto const found = download<kernels::cuda::Verdict>(this->machine(), verdict());
    return {found.norm, found.not_finite == 0};
  }

 private:
  [[nodiscard]] kernels::cuda::Measured* of_tensor() const noexcept {
    return static_cast<kernels::cuda::Measured*>(of_tensor_.data());
  }
  [[nodiscard]] kernels::cuda::NormNumbers* in_numbers() const noexcept {
    return static_cast<kernels::cuda::NormNumbers*>(numbers_.data());
  }
  [[nodiscard]] kernels::cuda::Verdict* verdict() const noexcept {
    return static_cast<kernels::cuda::Verdict*>(verdict_.data());
  }

  Buffer of_chunk_, of_tensor_, ranges_, numbers_, verdict_;
};

}  // namespace weft::cuda
