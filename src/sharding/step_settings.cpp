#include "sharding/step_settings.hpp"

#include <fmt/format.h>

#include <bit>
#include <initializer_list>
#include <variant>

#include "optim/rule.hpp"
#include "sharding/tag_texts.hpp"

namespace weft {
namespace {

// Each word added is a bijection of the value so far. The upper half is folded in, because the lower bits of a product
// do not depend on the upper bits of its factors.
class Digest {
 public:
  void add(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15U;
    value_ ^= value_ >> 32U;
  }
  void add(double value) noexcept { add(std::bit_cast<std::uint64_t>(value)); }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

/// Adds all that options of one kind say.
struct AddOptions {
  Digest& all;

  void operator()(AdamOptions const& o) const { add_adam(o); }
  void operator()(AdamWOptions const& o) const { add_adam(o); }
  void operator()(SgdOptions const& o) const {
    add({o.lr, o.momentum, o.dampening, o.weight_decay}, {o.nesterov, o.maximize});
  }
  void operator()(LambOptions const& o) const { add({o.lr, o.beta1, o.beta2, o.eps, o.weight_decay}, {o.maximize}); }
  void operator()(LionOptions const& o) const { add({o.lr, o.beta1, o.beta2, o.weight_decay}, {o.maximize}); }
  void operator()(AdagradOptions const& o) const {
    add({o.lr, o.lr_decay, o.weight_decay, o.initial_accumulator_value, o.eps}, {o.maximize});
  }
  template <typename Options>
  void add_adam(Options const& o) const {
    add({o.lr, o.beta1, o.beta2, o.eps, o.weight_decay}, {o.amsgrad, o.maximize});
  }
  void add(std::initializer_list<double> numbers, std::initializer_list<bool> flags) const {
    for (double const number : numbers) all.add(number);
    for (bool const flag : flags) all.add(std::uint64_t{flag});
  }
};

std::optional<float> value_of(float const* input) noexcept {
  return input != nullptr ? std::optional(*input) : std::nullopt;
}

}  // namespace

void StepSettings::take(PieceOptimizer const& shards, GradScaler const* scaler, StepInputs const& inputs) {
  options_.resize(shards.group_count());
  for (std::size_t group = 0; group < options_.size(); ++group) options_[group] = shards.options(group);
  steps_ = shards.step_count();
  scale_ = scaler != nullptr ? std::optional(scaler->state()) : std::nullopt;
  step_ = inputs.step != nullptr ? std::optional(*inputs.step) : std::nullopt;
  inputs_ = {value_of(inputs.lr), value_of(inputs.inv_scale), value_of(inputs.clip), inputs.clip_value,
             value_of(inputs.found_inf)};
  tag_ = digest();
}

std::uint32_t StepSettings::digest() const noexcept {
  Digest all;
  for (auto const& options : options_) std::visit(AddOptions{all}, options);
  all.add(static_cast<std::uint64_t>(steps_));
  if (scale_) {
    all.add(static_cast<double>(scale_->scale));
    all.add(static_cast<std::uint64_t>(scale_->growth_tracker));
    all.add(static_cast<std::uint64_t>(scale_->hysteresis_left));
  }
  all.add(static_cast<std::uint64_t>(step_.value_or(-1)));
  for (std::optional<float> const& input : inputs_) {
    all.add(input ? std::uint64_t{std::bit_cast<std::uint32_t>(*input)} : ~std::uint64_t{0});
  }
  return static_cast<std::uint32_t>(all.value()) | kMark;
}

std::string StepSettings::name_tag(std::uint32_t tag) {
  return fmt::format("step settings {:08x}", tag);
}

std::string StepSettings::name_tags(std::string const& what) {
  return weft::name_tags(what, [](std::uint32_t tag) { return is_tag(tag) ? name_tag(tag) : std::string(); });
}

Facts StepSettings::facts() const {
  Facts facts;
  for (std::size_t group = 0; group < options_.size(); ++group) {
    facts.emplace_back(fmt::format("the learning rate of group {}", group), fmt::format("{}", lr_of(options_[group])));
    facts.emplace_back(fmt::format("the options of group {}", group), describe(options_[group]));
  }
  facts.emplace_back("the number of steps applied", std::to_string(steps_));
  if (scale_) {
    facts.emplace_back("the loss scale", fmt::format("{}", scale_->scale));
    facts.emplace_back("the scaler's growth_tracker", std::to_string(scale_->growth_tracker));
    facts.emplace_back("the scaler's hysteresis_left", std::to_string(scale_->hysteresis_left));
  }
  facts.emplace_back("inputs.step", step_ ? std::to_string(*step_) : "not given");
  constexpr std::array<char const*, kInputs> kNames{"inputs.lr", "inputs.inv_scale", "inputs.clip", "inputs.clip_value",
                                                    "inputs.found_inf"};
  for (std::size_t i = 0; i < kInputs; ++i) {
    facts.emplace_back(kNames[i], inputs_[i] ? fmt::format("{}", *inputs_[i]) : "not given");
  }
  return facts;
}

bool StepSettings::is_reason_of(Error const& failure) {
  int tags = 0;
  static_cast<void>(weft::name_tags(failure.what(), [&](std::uint32_t tag) {
    if (is_tag(tag)) ++tags;
    return std::string();
  }));
  return failure.code() == ErrorCode::mismatch && tags == 2;
}

std::optional<std::string> StepSettings::difference(Communicator& communicator, std::vector<int> const& numbers) const {
  try {
    return first_difference(communicator, facts(), numbers);
  } catch (Error const&) {  // the others are gone, or have made other calls since: `failure` alone has to do
    return std::nullopt;
  }
}

Error StepSettings::error_of(char const* who, std::string const& difference) {
  return {ErrorCode::mismatch, fmt::format("{}: {}; bring the same to a step on every rank", who, difference)};
}

void StepSettings::explain(Error const& failure, Communicator& communicator, char const* who) const {
  if (!is_reason_of(failure)) return;
  if (auto const what = difference(communicator)) throw error_of(who, *what);
}

}  // namespace weft
