#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "weft/data_type.hpp"

namespace weft::perf {

/// One form (out of place or in place) of a table line.
struct Timing {
  double seconds = 0;
  double algorithm_gbps = 0;
  double bus_gbps = 0;
  std::optional<double> wrong;  ///< elements; absent when results were not checked
};

/// A column behind nccl-tests' thirteen.
struct Column {
  std::string name;
  std::string unit;
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
  std::string timestamp;            ///< empty: no such column
  std::vector<std::string> extras;  ///< one per Column
};

struct TableLayout {
  bool cpu_time = false;    ///< "cputime" heads the times
  bool timestamps = false;  ///< a timestamp follows the thirteen columns
  std::vector<Column> extras{};
};

/// nccl-tests' header lines, and the names and units of the columns behind them.
[[nodiscard]] std::string table_header(TableLayout const& layout);
/// nccl-tests' row, and the columns behind it.
[[nodiscard]] std::string table_line(Line const& line);

/// Mean bus bandwidth of the timings whose time is known; a time lost in noise is 0 and does not count. 0 if there are
/// none.
[[nodiscard]] double average_bus_gbps(std::vector<Timing> const& timings);

/// What is known after the last line.
struct Totals {
  double wrong = 0;                   ///< elements
  double average_gbps = 0;            ///< mean of the bus bandwidths
  std::optional<bool> fast_enough{};  ///< whether NCCL_TESTS_MIN_BW was reached; absent if it is not set
  std::size_t lines = 0;
  std::size_t disturbed = 0;  ///< lines for which no undisturbed round was seen
  bool has_wishes = false;    ///< environment variables say how long canaries should take
};

/// As nccl-tests judges NCCL_TESTS_MIN_BW: 90 % of it is enough.
[[nodiscard]] bool is_fast_enough(double average_gbps, double wanted_gbps);

/// nccl-tests' closing lines: elements that were wrong, and the mean of the bus bandwidths.
[[nodiscard]] std::string closing_text(Totals const& totals);
/// Says how many lines are from a disturbed round; empty if none is.
[[nodiscard]] std::string disturbed_text(Totals const& totals);

/// `value` with two decimals, or fewer if it would be wider than `width`.
[[nodiscard]] std::string number_text(double value, int width);
/// Microseconds with at least three significant digits; "n/a" for a difference that was lost in noise.
[[nodiscard]] std::string us_text(double seconds);
/// "3.00x"; "n/a" when there is none.
[[nodiscard]] std::string ratio_text(double value);
/// numerator / denominator; 0 when either is not positive.
[[nodiscard]] double ratio(double numerator, double denominator);

/// "2026-01-31 12:34:56", local time.
[[nodiscard]] std::string now_text();

/// Geometric mean of the positive finite ones among `values`; 0 when there is none.
[[nodiscard]] double geometric_mean(std::vector<double> const& values);

}  // namespace weft::perf
