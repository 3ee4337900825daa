#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace weft::tool_output {

/// For numbers of a command line: CLI::Range lets through what compares with nothing, "nan".
inline CLI::Validator finite() {
  return {[](std::string const& text) {
            double value = 0;
            auto const number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
            return number ? std::string() : text + " is no finite number";
          },
          ""};
}

}  // namespace weft::tool_output
