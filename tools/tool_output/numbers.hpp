#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace weft::tool_output {

/// A validator for numbers on a command line. CLI::Range would accept "nan", which compares with nothing.
inline CLI::Validator finite() {
  return {[](std::string const& text) {
            double value = 0;
            auto const number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
            return number ? std::string() : text + " is no finite number";
          },
          ""};
}

/// Reads the value of --seed. CLI11's own reading of numbers would take it modulo 2^64.
/// @throws CLI::ValidationError
inline std::uint64_t parse_seed(std::string const& text) {
  std::uint64_t seed = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return seed;
  throw CLI::ValidationError("--seed", "\"" + text + "\" is no whole number from 0 to 2^64 - 1");
}

}  // namespace weft::tool_output
