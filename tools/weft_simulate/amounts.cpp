#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "weft/error.hpp"
#include "weft_simulate/settings.hpp"

namespace weft::simulate_tool {
namespace {

constexpr double kMostBytes = 0x1p40;
constexpr double kMostSeconds = 1e5;

[[noreturn]] void refuse(std::string const& why) {
  throw Error(ErrorCode::invalid_argument, why);
}

/// The number that `text` begins with and what is behind it; NaN where there is none.
std::pair<double, std::string> split(std::string const& text) {
  char* end = nullptr;
  auto const value = std::strtod(text.c_str(), &end);
  return {end == text.c_str() ? std::nan("") : value, end};
}

std::vector<std::string> parts_of(std::string const& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  if (text.empty() || text.back() == ',') parts.emplace_back();
  return parts;
}

}  // namespace

std::size_t parse_bytes(std::string const& text) {
  auto [value, unit] = split(text);
  auto const power = std::string_view(" KMG").find(unit.empty() ? ' ' : unit.front() == 'k' ? 'K' : unit.front());
  if (unit.size() > 1 || power == std::string_view::npos || std::isnan(value)) {
    refuse(fmt::format("\"{}\" is no size: 100, 64K, 128M, 1G (2^10, …)", text));
  }
  value = std::ldexp(value, static_cast<int>(10 * power));
  if (value < 1 || value > kMostBytes || std::floor(value) != value) {
    refuse(fmt::format("\"{}\" is no size from 1 byte to 1024G", text));
  }
  return static_cast<std::size_t>(value);
}

std::vector<std::size_t> parse_sizes(std::string const& text) {
  std::vector<std::size_t> sizes;
  for (auto const& part : parts_of(text)) {
    auto const dash = part.find('-', 1);  // a first one is a sign
    if (dash == std::string::npos) {
      sizes.push_back(parse_bytes(part));
      continue;
    }
    if (dash + 1 == part.size()) refuse(fmt::format("\"{}\" is no size: nothing is behind its -", part));
    auto const first = parse_bytes(part.substr(0, dash));
    auto const last = parse_bytes(part.substr(dash + 1));
    if (first > last) refuse(fmt::format("\"{}\" ends before it begins", part));
    for (auto size = first; size <= last; size *= 2) sizes.push_back(size);
  }
  return sizes;
}

double parse_seconds(std::string const& text) {
  auto const [value, unit] = split(text);
  double const factor = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : unit == "ns" ? 1e-9 : 0;
  auto const seconds = value * factor;
  if (factor == 0 || !(seconds >= 0 && seconds < kMostSeconds))
    refuse(fmt::format("\"{}\" is no time: 5us, 3ms, 20ns, 1s", text));
  return seconds;
}

std::vector<sim::Straggler> parse_stragglers(std::string const& text) {
  std::vector<sim::Straggler> all;
  for (auto const& part : parts_of(text)) {
    auto const bad = [&] { refuse(fmt::format("--straggler: \"{}\" is not like 17:2, 17@5ms or 17:2@5ms", part)); };
    auto const at = part.find('@');
    auto const [rank, rest] = split(part.substr(0, at));
    if (!(rank >= 0 && rank < 1e9) || std::floor(rank) != rank) bad();
    sim::Straggler slow;
    slow.rank = static_cast<int>(rank);
    if (at != std::string::npos) slow.delay = sim::from_seconds(parse_seconds(part.substr(at + 1)));
    if (rest.empty() && at == std::string::npos) bad();
    if (!rest.empty()) {
      auto const [factor, behind] = split(rest.substr(1));
      if (rest.front() != ':' || !behind.empty() || !(factor >= 1)) bad();
      slow.factor = factor;
    }
    all.push_back(slow);
  }
  return all;
}

std::vector<sim::Loss> parse_losses(std::string const& text) {
  std::vector<sim::Loss> all;
  for (auto const& part : parts_of(text)) {
    auto const at = part.find('@');
    auto const [rank, rest] = split(part.substr(0, at));
    if (at == std::string::npos || !rest.empty() || !(rank >= 0 && rank < 1e9) || std::floor(rank) != rank) {
      refuse(fmt::format("--lose: \"{}\" is not like 17@5ms", part));
    }
    all.push_back({static_cast<int>(rank), sim::from_seconds(parse_seconds(part.substr(at + 1)))});
  }
  return all;
}

TrainingStep parse_step(std::string const& text) {
  constexpr double kMostLayers = 10'000;
  auto const by = text.find('x');
  auto const at = text.find('@');
  auto const [layers, rest] = split(text.substr(0, by));
  if (by == std::string::npos || at == std::string::npos || at < by || !rest.empty() || !(layers >= 1) ||
      layers > kMostLayers || std::floor(layers) != layers) {
    refuse(fmt::format("--step: \"{}\" is not like 24x12M@8ms: layers, bytes and backward's time of each", text));
  }
  TrainingStep step;
  step.layers = static_cast<int>(layers);
  step.layer_bytes = parse_bytes(text.substr(by + 1, at - by - 1)) / sizeof(float) * sizeof(float);
  if (step.layer_bytes == 0) refuse(fmt::format("--step: \"{}\": a layer has 4 bytes or more", text));
  step.backward_s = parse_seconds(text.substr(at + 1));
  step.forward_s = step.backward_s / 2;
  return step;
}

}  // namespace weft::simulate_tool
