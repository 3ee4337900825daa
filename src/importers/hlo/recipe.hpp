#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "importers/hlo/groups.hpp"
#include "importers/hlo/module.hpp"
#include "weft/import_hlo.hpp"
#include "weft/op_graph.hpp"

namespace weft::hlo {

/// A result that a step leaves in a slot.
struct Write {
  int slot = -1;
  std::int64_t bytes = 0;
  int over = -1;         ///< the slot in whose memory the result lies
  int in_place_of = -1;  ///< the slot over which the result may be written
};

/// One operator, or a computation to run in its place.
struct Step {
  enum class Kind : std::uint8_t { op, loop, call };
  Kind kind = Kind::op;
  std::string_view name{};
  std::vector<int> reads{};  ///< slots; of a loop or call: its arguments, leaf by leaf
  // of an operator
  OpNode costs{};  ///< kind, flops, memory_bytes, collective
  std::vector<Write> writes{};
  bool is_rewritten = false;
  // of a loop or call
  int callee = -1;
  std::int64_t trips = 1;
  int layer_instruction = -1;  ///< an instruction of a loop's body: its value is the layer, …
  int counter = -1;            ///< … computed from this element of the loop's tuple, …
  std::int64_t first = 0;      ///< … which starts with this value …
  std::int64_t stride = 0;     ///< … and grows by this one
  std::vector<int> results{};  ///< slots
};

/// How to run a computation: its operators, with slots for values, ready to be put into a graph any number of times.
struct Recipe {
  int slots = 0;
  std::vector<int> parameters{};  ///< slots of all parameters' leaves
  std::vector<int> results{};     ///< slots of the root's leaves
  std::vector<std::int64_t> parameter_bytes{};
  std::vector<std::int64_t> result_bytes{};
  std::vector<Step> steps{};
  // of one run, callees with all their iterations
  double flops = 0;
  double memory_bytes = 0;
  double unfused_bytes = 0;
  double collective_bytes = 0;
};

/// The recipes of all computations that the entry reaches by calls, loops and branches, by the computation's number;
/// all other recipes are empty.
///
/// Of a conditional's branches the dearest one is taken: the sum of flops ÷ 300, bytes of memory, and ten times the
/// bytes of collectives counts.
/// @throws Error{invalid_argument} with line and column.
[[nodiscard]] std::vector<Recipe> write_recipes(Module const& module, Groups& groups, ImportHloOptions const& options,
                                                HloReport& report);

}  // namespace weft::hlo
