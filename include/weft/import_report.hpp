#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// What became of a recorded step.
struct ImportReport {
  struct Warning {
    std::string what{};
    std::int64_t count = 0;
  };
  std::string source{};
  std::int64_t entries = 0;         ///< events or nodes that were there
  std::int64_t operators = 0;       ///< of the graph
  std::int64_t within_others = 0;   ///< entries that are part of an operator
  std::int64_t free_entries = 0;    ///< entries that cost nothing: views, annotations
  std::int64_t collectives = 0;     ///< of the operators
  double collective_bytes = 0;      ///< as OpCollective counts them
  std::vector<Warning> warnings{};  ///< what was not known, by first appearance

  void warn(std::string const& what);
};

/// As lines for people.
[[nodiscard]] std::string to_string(ImportReport const& report);

}  // namespace weft
