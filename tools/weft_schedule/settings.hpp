#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph_input/graph_source.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// A policy of the command line: "prefetch3" is SchedulePolicy::settings of that depth.
struct PolicyChoice {
  SchedulePolicy policy = SchedulePolicy::weft;
  int prefetch_depth = 0;
  [[nodiscard]] std::string name() const;
  friend bool operator==(PolicyChoice const&, PolicyChoice const&) = default;
};

/// What the command line says.
struct Settings : graph_tool::GraphSource {
  std::string cluster{};  ///< name or file
  std::string memory{};   ///< empty: the cluster's
  std::vector<PolicyChoice> policies{};
  double contention = 0;
  std::string what_if{};
  std::string measured{};  ///< a trace that the plan is compared with
  double time_limit_s = 60;
  std::uint64_t seed = 1;
  bool replay = false;
  bool recompute = false;              ///< what is computed again is chosen to fit the memory
  bool recompute_collectives = false;  ///< ... collectives may be repeated for it
  // Files to write; empty: none.
  std::string plan_file{};
  std::string trace{};
  std::string picture{};
  std::string json{};
  std::string graph_out{};
};

/// Of main()'s arguments; none where the program is to end with `exit_code` (after --help, or for bad usage: 2).
struct Arguments {
  std::optional<Settings> settings{};
  int exit_code = 0;
};
[[nodiscard]] Arguments parse_arguments(int argc, char** argv);

}  // namespace weft::schedule_tool
