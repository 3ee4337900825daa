#include "optimizer/work.hpp"

#include <cmath>
#include <thread>

#include "kernels/cpu/optim/gradients.hpp"
#include "kernels/cpu/optim/update.hpp"

namespace weft::perf {

void OptimizerWork::on_threads(std::size_t threads, std::function<void(std::size_t)> const& body) {
  std::vector<std::jthread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back([&body, t] { body(t); });
  body(0);
}

OptimizerWork::OptimizerWork(std::size_t count, std::size_t threads, OptimizerOptions const& options, bool plain,
                             StateType state)
    : threads_(threads), parameters_(threads), gradients_(threads), optimizer_([&] {
        std::vector<BufferView> views;
        on_threads(threads, [&](std::size_t t) {
          std::size_t const mine = count / threads;
          parameters_[t] = Buffer::host(mine, plain ? DataType::f32 : DataType::bf16);
          gradients_[t] = Buffer::host(mine, DataType::f32);
          Buffer const ones = Buffer::host(mine, DataType::f32);
          for (float& value : ones.as<float>()) value = 1;
          convert(ones.view(), parameters_[t].view());
        });
        for (Buffer const& one : parameters_) views.push_back(one.view());
        return Optimizer(views, options, {.zero_gradients = !plain, .state = state});
      }()) {
  write_gradients();
}

void OptimizerWork::write_gradients() {
  on_threads(threads_, [&](std::size_t t) {
    std::span<float> const values = gradients_[t].as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i & 255U) * 0.125F - 15.0F;
  });
}

void OptimizerWork::step() {
  constexpr float kInvScale = 1 / kScale;
  std::vector<GradientNorm> norms(threads_);
  on_threads(threads_, [&](std::size_t t) {
    BufferView const mine = gradients_[t].view();
    norms[t] = gradient_norm({&mine, 1}, NormType::l2, kInvScale);
  });
  double squares = 0;
  float found_inf = 0;
  for (GradientNorm const& one : norms) {
    squares += one.norm * one.norm;
    if (!one.finite) found_inf = 1;
  }
  float const clip = clip_factor(std::sqrt(squares), 1);
  optimizer_.begin_step({.inv_scale = &kInvScale, .clip = &clip, .found_inf = &found_inf});
  on_threads(threads_, [&](std::size_t t) { optimizer_.update(t, gradients_[t].view()); });
}

void OptimizerWork::update() {
  optimizer_.begin_step();
  on_threads(threads_, [&](std::size_t t) { optimizer_.update(t, gradients_[t].view()); });
}

void OptimizerWork::traffic() {
  bool const first = moved_.empty();
  if (first) moved_.resize(threads_);
  std::vector<std::uint32_t> seen(threads_);
  on_threads(threads_, [&](std::size_t t) {
    if (first) {
      for (int which = 0; which < 3; ++which) {
        moved_[t].push_back(Buffer::host(gradients_[t].count(), DataType::f32));
        for (float& value : moved_[t].back().as<float>()) value = 1;
      }
    }
    seen[t] = kernels::gradient_traffic(gradients_[t].as<float>().data(), gradients_[t].count());
  });
  on_threads(threads_, [&](std::size_t t) {
    kernels::UpdateArrays arrays;
    arrays.parameter = parameters_[t].data();
    arrays.parameter_type = parameters_[t].dtype();
    arrays.master = moved_[t][0].as<float>().data();
    arrays.gradient = gradients_[t].data();
    arrays.state = {moved_[t][1].as<float>().data(), moved_[t][2].as<float>().data(), nullptr};
    // Uses the result, so that the compiler does not leave out its computation.
    kernels::adam_traffic(arrays, gradients_[t].count(), {.factor = seen[t] == 1 ? 0.5F : 1.0F, .zero = true});
  });
}

ManyTensorsWork::ManyTensorsWork(std::size_t tensors, std::size_t elements, std::size_t threads)
    : threads_(threads), optimizer_([&] {
        std::vector<BufferView> views;
        for (std::size_t i = 0; i < tensors; ++i) {
          parameters_.push_back(Buffer::host(elements, DataType::f32));
          gradients_.push_back(Buffer::host(elements, DataType::f32));
          for (float& value : gradients_.back().as<float>()) value = 0.125F;
          views.push_back(parameters_.back().view());
        }
        return Optimizer(views, AdamWOptions{});
      }()) {}

void ManyTensorsWork::update() {
  optimizer_.begin_step();
  OptimizerWork::on_threads(threads_, [&](std::size_t t) {
    std::size_t const last = gradients_.size() * (t + 1) / threads_;
    for (std::size_t i = gradients_.size() * t / threads_; i < last; ++i) optimizer_.update(i, gradients_[i].view());
  });
}

}  // namespace weft::perf
