#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft {

struct ImportHloOptions {
  bool rewrite_reduce_scatters = true;  ///< an all-reduce of which each rank keeps its slice becomes a reduce_scatter
  bool fuse = true;                     ///< elementwise chains become one operator
  std::int64_t unknown_trips = 1;       ///< of a loop whose number of iterations its condition does not tell
  std::int64_t max_ops = 2'000'000;     ///< of the graph; more than that is refused
};

/// What was found in a module, what was made of it, and what could not be costed. Collectives count as often as they
/// run: those of a loop's body once per iteration.
struct HloReport {
  struct Loop {
    std::string name{};
    std::int64_t trips = 0;
    bool known = true;       ///< false: ImportHloOptions::unknown_trips was taken
    std::int64_t steps = 0;  ///< operators of one iteration
  };
  struct Collective {
    std::string kind{};  ///< as to_string(CollectiveKind) says it
    int ranks = 0;       ///< of a set
    std::int64_t calls = 0;
    double bytes = 0;  ///< as OpCollective counts them
  };
  struct Warning {
    std::string what{};
    std::int64_t count = 0;  ///< of instructions
    double bytes = 0;        ///< what they were charged
  };
  std::string source{};
  std::string module{};
  std::int64_t computations = 0;
  std::int64_t instructions = 0;
  int ranks = 0;
  std::vector<Loop> loops{};
  std::int64_t conditionals = 0;          ///< of each the dearest branch is in the graph
  std::vector<Collective> collectives{};  ///< of the graph
  std::int64_t reduce_scatters = 0;       ///< instructions rewritten
  double reduce_scatter_bytes = 0;        ///< what they reduce, in all iterations
  double all_reduce_bytes = 0;            ///< of those left, in all iterations
  std::int64_t free_instructions = 0;     ///< views, copies that move nothing, what constants alone decide
  std::int64_t fused_instructions = 0;    ///< that are in one operator with others
  std::int64_t fusions = 0;               ///< those operators, each body counted once
  double flops = 0;                       ///< of the graph
  double memory_bytes = 0;                ///< of the graph
  double unfused_memory_bytes = 0;        ///< had each instruction read and written memory
  std::vector<Warning> warnings{};
};

struct ImportedHlo {
  OpGraph graph{};
  HloReport report{};
};

/// Reads the text of an XLA HLO module, as it comes out of SPMD partitioning or later, into one rank's graph: calls and
/// loops inlined, constants and views gone. docs/scheduler.md says what it rewrites, fuses and assumes.
///
/// @throws Error{invalid_argument} naming source, line and column: text that is no HLO, operands that are not defined
/// above, attributes that do not fit, computations that call themselves; naming `max_ops` where the graph is larger.
/// Opcodes and custom calls it does not know are no errors: they cost what their operands and results have bytes, and
/// the report counts them.
[[nodiscard]] ImportedHlo import_hlo(std::istream& text, std::string const& source,
                                     ImportHloOptions const& options = {});

/// As lines for people.
[[nodiscard]] std::string to_string(HloReport const& report);

}  // namespace weft
