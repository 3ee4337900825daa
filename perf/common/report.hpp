#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/options.hpp"

namespace weft::perf {

/// One form (out of place or in place) of a table line.
struct Timing {
  double seconds = 0;
  double algorithm_gbps = 0;
  double bus_gbps = 0;
  std::optional<double> wrong;  ///< elements; absent when results were not checked
};

/// One line: a message size.
struct Line {
  std::size_t bytes = 0;
  std::size_t count = 0;
  DataType dtype = DataType::f32;
  std::string op;  ///< "none" where nothing is reduced
  int root = -1;   ///< -1 where there is none
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;
};

/// nccl-tests' two header lines and units line.
[[nodiscard]] std::string table_header();
[[nodiscard]] std::string table_line(Line const& line);

/// One line of the second table, seconds.
struct Detail {
  std::size_t bytes = 0;
  double call = 0;
  double cost = 0;
  double limit = 0;
  std::optional<double> peer_call;
  std::optional<double> peer_cost;
  std::size_t rounds_kept = 0;
  std::size_t rounds = 0;
};

/// call, cost, limit and, with a peer, its figures, the ratios and their geometric means.
[[nodiscard]] std::string detail_table(std::vector<Detail> const& details, std::string const& peer);

/// Geometric mean of the positive finite ones among `values`; 0 when there is none.
[[nodiscard]] double geometric_mean(std::vector<double> const& values);

}  // namespace weft::perf
