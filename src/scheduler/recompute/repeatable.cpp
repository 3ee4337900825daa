#include "scheduler/recompute/repeatable.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace weft {

namespace {

constexpr std::array<std::string_view, 16> kRandomWords = {
    "dropout", "bernoulli",   "rand",      "randn",   "randint", "randperm",  "random", "rng",
    "normal",  "multinomial", "geometric", "poisson", "cauchy",  "lognormal", "rrelu",  "exponential"};

}  // namespace

bool sounds_random(std::string_view name) {
  std::string word;
  auto const is_random = [&] {
    return std::find(kRandomWords.begin(), kRandomWords.end(), word) != kRandomWords.end();
  };
  for (char const letter : name) {
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
      continue;
    }
    if (is_random()) return true;
    word.clear();
  }
  return is_random();
}

Obstacle obstacle_to_repeating(OpNode const& op, RecomputeOptions const& options) {
  if (op.kind == OpKind::update) return Obstacle::update;
  if (op.repeatable.has_value()) return *op.repeatable ? Obstacle::none : Obstacle::forbidden;
  if (op.kind == OpKind::collective && !options.collectives) return Obstacle::collective;
  return sounds_random(op.name) ? Obstacle::random : Obstacle::none;
}

std::string_view words_for(Obstacle obstacle) noexcept {
  switch (obstacle) {
    case Obstacle::none: return "may be run again";
    case Obstacle::update: return "is an update of weights";
    case Obstacle::collective: return "is a collective, which may be repeated only where that is allowed";
    case Obstacle::random: return "draws random numbers, by its name, and is not marked \"repeatable\"";
    case Obstacle::forbidden: return "is marked as not repeatable";
  }
  return "";
}

}  // namespace weft
