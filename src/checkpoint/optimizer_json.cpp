#include "checkpoint/optimizer_json.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "checkpoint/json_text.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

// Calls visit(options, name, member) for every member of the options.
template <typename Visit>
void each(AdamOptions& o, Visit const& visit) {
  visit("lr", o.lr), visit("beta1", o.beta1), visit("beta2", o.beta2), visit("eps", o.eps);
  visit("weight_decay", o.weight_decay), visit("amsgrad", o.amsgrad), visit("maximize", o.maximize);
}
template <typename Visit>
void each(AdamWOptions& o, Visit const& visit) {
  visit("lr", o.lr), visit("beta1", o.beta1), visit("beta2", o.beta2), visit("eps", o.eps);
  visit("weight_decay", o.weight_decay), visit("amsgrad", o.amsgrad), visit("maximize", o.maximize);
}
template <typename Visit>
void each(SgdOptions& o, Visit const& visit) {
  visit("lr", o.lr), visit("momentum", o.momentum), visit("dampening", o.dampening);
  visit("weight_decay", o.weight_decay), visit("nesterov", o.nesterov), visit("maximize", o.maximize);
}
template <typename Visit>
void each(LambOptions& o, Visit const& visit) {
  visit("lr", o.lr), visit("beta1", o.beta1), visit("beta2", o.beta2), visit("eps", o.eps);
  visit("weight_decay", o.weight_decay), visit("maximize", o.maximize);
}
template <typename Visit>
void each(LionOptions& o, Visit const& visit) {
  visit("lr", o.lr), visit("beta1", o.beta1), visit("beta2", o.beta2);
  visit("weight_decay", o.weight_decay), visit("maximize", o.maximize);
}
template <typename Visit>
void each(AdagradOptions& o, Visit const& visit) {
  visit("lr", o.lr), visit("lr_decay", o.lr_decay), visit("weight_decay", o.weight_decay);
  visit("initial_accumulator_value", o.initial_accumulator_value), visit("eps", o.eps), visit("maximize", o.maximize);
}

// OptimizerOptions that hold the alternative of this name.
template <std::size_t Index = 0>
std::optional<OptimizerOptions> named(std::string const& name) {
  if constexpr (Index < std::variant_size_v<OptimizerOptions>) {
    OptimizerOptions const options{std::in_place_index<Index>};
    return name == name_of(options) ? std::optional(options) : named<Index + 1>(name);
  } else {
    return std::nullopt;
  }
}

}  // namespace

Json optimizer_to_json(OptimizerOptions const& options) {
  Json json{{"name", name_of(options)}};
  std::visit([&](auto copy) { each(copy, [&](char const* name, auto& member) { json[name] = member; }); }, options);
  return json;
}

OptimizerOptions optimizer_from_json(std::filesystem::path const& path, Json const& json) {
  auto const name = json.at("name").get<std::string>();
  std::optional<OptimizerOptions> options = named(name);
  if (!options) refuse(path, fmt::format("has the unknown optimizer {}", name));
  std::visit(
      [&](auto& alternative) {
        each(alternative, [&](char const* option, auto& member) { json.at(option).get_to(member); });
      },
      *options);
  return *options;
}

}  // namespace weft
