#include "sharding/facts.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "collectives/texts.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

// FNV-1a.
std::uint64_t digest_of(std::string_view text) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (char const c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return digest;
}

struct Describe {
  std::string operator()(AdamOptions const& o) const { return adam("Adam", o); }
  std::string operator()(AdamWOptions const& o) const { return adam("AdamW", o); }
  std::string operator()(SgdOptions const& o) const {
    return fmt::format("SGD lr {} momentum {} dampening {} weight_decay {} nesterov {} maximize {}", o.lr, o.momentum,
                       o.dampening, o.weight_decay, o.nesterov, o.maximize);
  }
  std::string operator()(LambOptions const& o) const {
    return fmt::format("Lamb lr {} betas {} {} eps {} weight_decay {} maximize {}", o.lr, o.beta1, o.beta2, o.eps,
                       o.weight_decay, o.maximize);
  }
  std::string operator()(LionOptions const& o) const {
    return fmt::format("Lion lr {} betas {} {} weight_decay {} maximize {}", o.lr, o.beta1, o.beta2, o.weight_decay,
                       o.maximize);
  }
  std::string operator()(AdagradOptions const& o) const {
    return fmt::format("Adagrad lr {} lr_decay {} weight_decay {} initial {} eps {} maximize {}", o.lr, o.lr_decay,
                       o.weight_decay, o.initial_accumulator_value, o.eps, o.maximize);
  }
  template <typename Options>
  static std::string adam(char const* name, Options const& o) {
    return fmt::format("{} lr {} betas {} {} eps {} weight_decay {} amsgrad {} maximize {}", name, o.lr, o.beta1,
                       o.beta2, o.eps, o.weight_decay, o.amsgrad, o.maximize);
  }
};

}  // namespace

std::string describe(OptimizerOptions const& options) {
  return std::visit(Describe{}, options);
}

std::string describe(std::optional<float> const& limit) {
  return limit ? fmt::format("{}", *limit) : "none";
}

char const* name_of(NormType type) noexcept {
  return type == NormType::l2 ? "l2" : "inf";
}

char const* name_of(StateType type) noexcept {
  return type == StateType::f32 ? "f32" : "block8";
}

char const* name_of(UnusedGradients unused) noexcept {
  if (unused == UnusedGradients::zero) return "zero";
  return unused == UnusedGradients::find ? "find" : "fixed";
}

std::optional<std::string> first_difference(Communicator& communicator, Facts const& facts,
                                            std::vector<int> const& numbers) {
  auto const number_of = [&](std::size_t rank) { return numbers.empty() ? static_cast<int>(rank) : numbers[rank]; };
  std::vector<std::uint64_t> mine;
  for (auto const& fact : facts) mine.push_back(digest_of(fact.second));
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::span<std::uint64_t const>(mine), std::span<std::uint64_t>(all)).wait();
  for (std::size_t i = facts.size(); i < all.size(); ++i) {
    std::size_t const which = i % facts.size();
    if (all[i] == all[which]) continue;
    auto const& [name, value] = facts[which];
    std::size_t const rank = i / facts.size();
    std::vector<std::string> const values = gather_texts(communicator, value);
    return fmt::format("rank {0} differs from rank {1}: {2} (rank {1}: {3}, rank {0}: {4})", number_of(rank),
                       number_of(0), name, values[0], values[rank]);
  }
  return std::nullopt;
}

void compare(Communicator& communicator, Facts const& facts, char const* who) {
  auto const difference = first_difference(communicator, facts);
  if (!difference) return;
  throw Error(ErrorCode::mismatch, fmt::format("{}: {}; build the same optimizer on every rank", who, *difference));
}

}  // namespace weft
