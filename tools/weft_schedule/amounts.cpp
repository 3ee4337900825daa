#include "weft_schedule/amounts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "weft_schedule/refuse.hpp"

namespace weft::schedule_tool {

namespace {

constexpr double kMostBytes = 0x1p62;
constexpr double kLeastBytes = 1024;  ///< that a number alone can mean
constexpr std::array<std::string_view, 9> kKeys = {"link",   "within", "latency",        "flops",     "bandwidth",
                                                   "memory", "ranks",  "ranks_per_host", "contention"};

struct Number {
  double value = 0;
  std::string unit{};
};

/// What stands behind the number is the unit; a value of -1 where there is no number.
Number split_number(std::string const& text) {
  char* end = nullptr;
  double const value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(value)) return {-1, {}};
  return {value, end};
}

/// 0 where there is no such unit.
double unit_of(std::string unit) {
  if (!unit.empty() && unit.back() == 'B') unit.pop_back();
  if (unit.empty()) return 1;
  auto const power = std::string_view("KMGT").find(unit.front() == 'k' ? 'K' : unit.front());
  if (power == std::string_view::npos) return 0;
  bool const binary = unit.size() == 2 && unit[1] == 'i';
  if (unit.size() > 1 && !binary) return 0;
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power) + 1);
}

Change parse_change(std::string const& part) {
  auto const equals = part.find('=');
  if (equals == std::string::npos) refuse(fmt::format("--what-if: \"{}\" is not like link=2x", part));
  Change change{.key = part.substr(0, equals), .text = part.substr(equals + 1)};
  if (std::find(kKeys.begin(), kKeys.end(), change.key) == kKeys.end()) {
    refuse(fmt::format("--what-if: there is no \"{}\"; there are {}", change.key, kChangeKeys));
  }
  if (change.key == "memory") {
    static_cast<void>(parse_memory(change.text));
    return change;
  }
  auto const [value, unit] = split_number(change.text);
  change.value = value;
  change.is_factor = unit == "x";
  if (value < 0 || (!unit.empty() && !change.is_factor)) {
    refuse(fmt::format("--what-if: {} of \"{}\" is neither a number nor a factor like 2x", change.key, change.text));
  }
  return change;
}

}  // namespace

MemoryAmount parse_memory(std::string const& text) {
  auto const [value, unit] = split_number(text);
  if (value > 0 && unit == "x") return {.times = value};
  double const bytes = value * unit_of(unit);
  if (value < 0 || unit_of(unit) <= 0 || bytes > kMostBytes) {
    refuse(fmt::format("\"{}\" is no amount of memory: 80G, 70Gi, bytes, or 1.3x the least", text));
  }
  if (unit.empty() && bytes < kLeastBytes) {
    refuse(fmt::format("\"{0}\" would be {1:.0f} bytes of memory: {0}x is times the least, {0}G 10^9 bytes, {0}B bytes",
                       text, bytes));
  }
  return {.bytes = static_cast<std::int64_t>(bytes)};
}

std::int64_t MemoryAmount::resolved(std::int64_t serial_peak, std::int64_t resident) const {
  if (!is_relative()) return bytes;
  double const transients = times * static_cast<double>(serial_peak - resident);
  return resident + static_cast<std::int64_t>(std::min(std::ceil(transients), kMostBytes));
}

std::string in_gigabytes(std::int64_t bytes) {
  double const giga = static_cast<double>(bytes) / 1e9;
  if (giga < 0.1) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.{}f} GB", giga, giga < 10 ? 2 : 1);
}

std::vector<Change> parse_changes(std::string const& text) {
  std::vector<Change> changes;
  if (!text.empty() && text.back() == ',') refuse(fmt::format("--what-if: nothing after the comma of \"{}\"", text));
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    Change const change = parse_change(part);
    if (std::any_of(changes.begin(), changes.end(), [&](Change const& other) { return other.key == change.key; })) {
      refuse(fmt::format("--what-if: {} is there twice", change.key));
    }
    changes.push_back(change);
  }
  return changes;
}

}  // namespace weft::schedule_tool
