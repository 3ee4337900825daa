#include "weft/optimizer_options.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/error.hpp"

namespace weft {
namespace {

/// The checks of one optimizer's options.
class Checker {
 public:
  explicit Checker(char const* optimizer) : optimizer_(optimizer) {}

  void not_negative(char const* option, double value) const {
    if (!(value >= 0) || std::isinf(value)) refuse(option, value, "finite and at least 0");
  }
  void below_one(char const* option, double value) const {
    if (!(value >= 0) || value >= 1) refuse(option, value, "at least 0 and below 1");
  }
  [[noreturn]] void refuse(char const* option, double value, char const* allowed) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} is {}; it must be {}", optimizer_, option, value, allowed));
  }

 private:
  char const* optimizer_;
};

template <typename Options>
void check_moments(Checker const& check, Options const& options) {
  check.below_one("beta1", options.beta1);
  check.below_one("beta2", options.beta2);
}

void check_options(Checker const& check, SgdOptions const& options) {
  check.not_negative("momentum", options.momentum);
  if (!std::isfinite(options.dampening)) check.refuse("dampening", options.dampening, "finite");
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0)) {
    check.refuse("nesterov", 1, "used with a momentum above 0 and without dampening");
  }
}
void check_options(Checker const& check, LionOptions const& options) {
  check_moments(check, options);
}
void check_options(Checker const& check, AdagradOptions const& options) {
  check.not_negative("lr_decay", options.lr_decay);
  check.not_negative("initial_accumulator_value", options.initial_accumulator_value);
  check.not_negative("eps", options.eps);
}
template <typename Options>
void check_options(Checker const& check, Options const& options) {
  check_moments(check, options);
  check.not_negative("eps", options.eps);
}

}  // namespace

char const* name_of(OptimizerOptions const& options) noexcept {
  constexpr char const* kNames[] = {"AdamW", "Adam", "SGD", "Lamb", "Lion", "Adagrad"};
  return kNames[options.index()];
}

double lr_of(OptimizerOptions const& options) noexcept {
  return std::visit([](auto const& one) { return one.lr; }, options);
}

void set_lr(OptimizerOptions& options, double lr) {
  Checker(name_of(options)).not_negative("lr", lr);
  std::visit([lr](auto& one) { one.lr = lr; }, options);
}

void check(OptimizerOptions const& options) {
  Checker const checker(name_of(options));
  std::visit(
      [&](auto const& one) {
        checker.not_negative("lr", one.lr);
        checker.not_negative("weight_decay", one.weight_decay);
        check_options(checker, one);
      },
      options);
}

}  // namespace weft
