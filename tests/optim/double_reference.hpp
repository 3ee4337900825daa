#pragma once

#include <cmath>
#include <vector>

#include "weft/optimizer_options.hpp"

namespace weft::test {

/// One tensor under one optimizer, element by element in double, written from the papers and torch.optim's
/// documentation.
class DoubleReference {
 public:
  DoubleReference(std::vector<double> parameters, OptimizerOptions const& options)
      : options_(options), p_(std::move(parameters)), m_(p_.size()), v_(p_.size()), largest_(p_.size()) {
    if (auto const* adagrad = std::get_if<AdagradOptions>(&options)) {
      v_.assign(p_.size(), adagrad->initial_accumulator_value);
    }
  }

  void step(std::vector<double> gradient) {
    ++t_;
    bool const maximize = std::visit([](auto const& o) { return o.maximize; }, options_);
    if (maximize) {
      for (double& g : gradient) g = -g;
    }
    std::visit([&](auto const& o) { step_by(o, gradient); }, options_);
  }
  void set_lr(double lr) { weft::set_lr(options_, lr); }
  /// As if so many steps had been made.
  void set_steps(int steps) { t_ = steps; }
  /// As if parameters were kept in a narrower type.
  template <typename Round>
  void round_parameters(Round&& round) {
    for (double& p : p_) p = round(p);
  }
  [[nodiscard]] std::vector<double> const& parameters() const { return p_; }

 private:
  void step_by(AdamOptions const& o, std::vector<double> const& g) {
    for (std::size_t i = 0; i < p_.size(); ++i) adam(o, i, g[i] + o.weight_decay * p_[i], p_[i]);
  }
  void step_by(AdamWOptions const& o, std::vector<double> const& g) {
    for (std::size_t i = 0; i < p_.size(); ++i) adam(o, i, g[i], p_[i] * (1 - o.lr * o.weight_decay));
  }
  template <typename Options>
  void adam(Options const& o, std::size_t i, double g, double p) {
    moments(o, i, g);
    largest_[i] = std::max(largest_[i], v_[i]);
    double const v = o.amsgrad ? largest_[i] : v_[i];
    p_[i] =
        p - o.lr / (1 - std::pow(o.beta1, t_)) * m_[i] / (std::sqrt(v) / std::sqrt(1 - std::pow(o.beta2, t_)) + o.eps);
  }
  template <typename Options>
  void moments(Options const& o, std::size_t i, double g) {
    m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
    v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * g * g;
  }
  void step_by(SgdOptions const& o, std::vector<double> const& gradient) {
    for (std::size_t i = 0; i < p_.size(); ++i) {
      double g = gradient[i] + o.weight_decay * p_[i];
      if (o.momentum != 0) {
        m_[i] = t_ == 1 ? g : o.momentum * m_[i] + (1 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * m_[i] : m_[i];
      }
      p_[i] -= o.lr * g;
    }
  }
  void step_by(LambOptions const& o, std::vector<double> const& g) {
    std::vector<double> u(p_.size());
    double p_norm = 0;
    double u_norm = 0;
    for (std::size_t i = 0; i < p_.size(); ++i) {
      moments(o, i, g[i]);
      double const m_hat = m_[i] / (1 - std::pow(o.beta1, t_));
      double const v_hat = v_[i] / (1 - std::pow(o.beta2, t_));
      u[i] = m_hat / (std::sqrt(v_hat) + o.eps) + o.weight_decay * p_[i];
      p_norm += p_[i] * p_[i];
      u_norm += u[i] * u[i];
    }
    double const ratio = p_norm > 0 && u_norm > 0 ? std::sqrt(p_norm / u_norm) : 1;
    for (std::size_t i = 0; i < p_.size(); ++i) p_[i] -= o.lr * ratio * u[i];
  }
  void step_by(LionOptions const& o, std::vector<double> const& g) {
    for (std::size_t i = 0; i < p_.size(); ++i) {
      double const direction = o.beta1 * m_[i] + (1 - o.beta1) * g[i];
      double const sign = direction > 0 ? 1 : (direction < 0 ? -1 : 0);
      p_[i] = p_[i] * (1 - o.lr * o.weight_decay) - o.lr * sign;
      m_[i] = o.beta2 * m_[i] + (1 - o.beta2) * g[i];
    }
  }
  void step_by(AdagradOptions const& o, std::vector<double> const& gradient) {
    for (std::size_t i = 0; i < p_.size(); ++i) {
      double const g = gradient[i] + o.weight_decay * p_[i];
      v_[i] += g * g;
      p_[i] -= o.lr / (1 + (t_ - 1) * o.lr_decay) * g / (std::sqrt(v_[i]) + o.eps);
    }
  }

  OptimizerOptions options_;
  int t_ = 0;
  std::vector<double> p_, m_, v_, largest_;
};

}  // namespace weft::test
