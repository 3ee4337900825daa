#pragma once

#include <utility>
#include <vector>

#include "tensors.hpp"
#include "unit_cast.hpp"

namespace train_gpt {

/// A replica's parameters, and gradients in the buckets of `Ddp`: weft::DataParallel, or anything with its gradient()
/// and mark_ready().
template <typename Ddp>
class DdpTensors final : public Tensors {
 public:
  DdpTensors(GptParameters const& parameters, std::vector<weft::BufferView> memory, Ddp& ddp)
      : memory_(std::move(memory)), ddp_(ddp), cast_(parameters) {}

  /// Gradients add to those of the passes before.
  void set_accumulating(bool accumulating) noexcept { accumulating_ = accumulating; }

  void enter(Pass, std::size_t) override { cast_.enter(); }
  [[nodiscard]] float const* parameter(std::size_t index) override { return cast_.parameter(index, memory_[index]); }
  [[nodiscard]] float* gradient(std::size_t index) override {
    return cast_.gradient(index, ddp_.gradient(index), accumulating_);
  }
  void gradient_done(std::size_t index) override {
    cast_.store_gradient(index, ddp_.gradient(index));
    ddp_.mark_ready(index);
  }
  [[nodiscard]] float keep() const override { return accumulating_ ? 1.0F : 0.0F; }

 private:
  std::vector<weft::BufferView> memory_;
  Ddp& ddp_;
  UnitCast cast_;
  bool accumulating_ = false;
};

}  // namespace train_gpt
