#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph_input/graph_source.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// A policy on the command line: "prefetch3" is SchedulePolicy::settings with a depth of 3.
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
  bool recompute = false;              ///< choose operators to run again so that the step fits the memory
  bool recompute_collectives = false;  ///< recomputing may also repeat collectives
  // Files to write; empty: none.
  std::string plan_file{};
  std::string trace{};
  std::string picture{};
  std::string json{};
  std::string graph_out{};
};

/// The settings from main()'s arguments; none if the program is to end with `exit_code` (0 after --help, 2 after bad
/// usage).
struct Arguments {
  std::optional<Settings> settings{};
  int exit_code = 0;
};
[[nodiscard]] Arguments parse_arguments(int argc, char** argv);

}  // namespace weft::schedule_tool
