#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/head.hpp"
#include "common/report.hpp"
#include "common/rounds.hpp"

namespace weft::perf {

/// Everything measured at one size besides the table's thirteen columns, in seconds. Absent if not asked for.
struct Detail {
  double call = 0;
  int iterations = 0;               ///< calls of each loop that was timed
  std::optional<double> cost;       ///< on a GPU: the host's time for a call
  std::optional<double> call_base;  ///< of the loops without calls, see Figures
  std::optional<double> cost_base;
  std::optional<double> limit;
  std::optional<double> peer_call;
  std::optional<double> peer_cost;
  std::optional<double> peer_call_base;  ///< of the peer's loops without calls
  std::optional<double> peer_cost_base;
  std::optional<double> overlap;  ///< percent
  Canary canary;                  ///< the worst of the rounds that count
  Canary least_canary;            ///< the best of them
  std::size_t rounds_kept = 0;
  std::size_t rounds = 0;
};

/// The columns behind the thirteen that `options` ask for, and one line's entries in them.
[[nodiscard]] std::vector<Column> extra_columns(Options const& options);
[[nodiscard]] std::vector<std::string> extra_texts(Options const& options, Detail const& detail);

/// One object of --json: library, version, op, memory, ranks, bytes, time_us and the rest.
[[nodiscard]] nlohmann::json json_line(Case const& what, Options const& options, int ranks, Line const& line,
                                       Detail const& detail);

/// Whether lines can be appended to `path`. Ask before measuring, not after.
[[nodiscard]] bool can_append(std::string const& path);
/// Appends `lines` to `path`. @throws Error{system}
void append_json_lines(std::string const& path, std::vector<nlohmann::json> const& lines);

/// The document of option -J: nccl-tests' keys, and the keys of --json for what nccl-tests does not measure.
class JsonDocument {
 public:
  JsonDocument(Case const& what, Options const& options, std::vector<RankPlace> const& places);

  void add(Line const& line, Detail const& detail);
  /// Writes it. @throws Error{system}
  void write(std::string const& path, Totals const& totals);

 private:
  nlohmann::json document_;
  std::string name_;
};

}  // namespace weft::perf
