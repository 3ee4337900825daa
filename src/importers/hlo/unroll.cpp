#include "importers/hlo/unroll.hpp"

#include <fmt/format.h>

#include <span>

#include "importers/hlo/evaluate.hpp"
#include "weft/error.hpp"

namespace weft::hlo {
namespace {

class Unroller {
 public:
  Unroller(Module const& module, std::vector<Recipe> const& recipes, ImportHloOptions const& options, OpGraph& graph,
           HloReport& report)
      : module_(module), recipes_(recipes), options_(options), graph_(graph), report_(report) {}

  Ends run() {
    Ends ends;
    for (int const parameter : entry().parameters) {
      auto const& instruction = entry().instructions[static_cast<std::size_t>(parameter)];
      add_parameters(instruction, instruction.shape, ends.parameters);
    }
    ends.results = run(module_.entry, ends.parameters, {});
    return ends;
  }

 private:
  /// The layer and iteration that an operator belongs to.
  struct Place {
    int layer = kNone;
    std::int64_t iteration = -1;
  };

  [[nodiscard]] Computation const& entry() const {
    return module_.computations[static_cast<std::size_t>(module_.entry)];
  }

  void add_parameters(Instruction const& instruction, Shape const& shape, std::vector<TensorId>& parameters) {
    if (!shape.is_tuple) {
      OpTensor tensor;
      tensor.name = std::string(instruction.name);
      tensor.bytes = shape.bytes;
      parameters.push_back(graph_.add(std::move(tensor)));
    }
    for (auto const& part : shape.parts) add_parameters(instruction, part, parameters);
  }

  /// Counts the work done, in operators and in values passed on: a garbage module may ask for more than there is time
  /// for.
  void spend(std::size_t work) {
    constexpr std::size_t kWorkOfOp = 64;
    work_ += work;
    if (work_ / kWorkOfOp > static_cast<std::size_t>(options_.max_ops) ||
        graph_.ops.size() > static_cast<std::size_t>(options_.max_ops)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: its loops and calls, unrolled, have more than max_ops = {} operators; raise "
                              "ImportHloOptions::max_ops where that is meant",
                              module_.source, options_.max_ops));
    }
  }

  std::vector<TensorId> run(int computation, std::span<TensorId const> arguments, Place const& place) {
    auto const& recipe = recipes_[static_cast<std::size_t>(computation)];
    spend(1 + static_cast<std::size_t>(recipe.slots));
    std::vector<TensorId> slots(static_cast<std::size_t>(recipe.slots), kNone);
    for (std::size_t i = 0; i < recipe.parameters.size(); ++i) {
      slots[static_cast<std::size_t>(recipe.parameters[i])] = arguments[i];
    }
    for (auto const& step : recipe.steps) {
      if (step.kind == Step::Kind::op) {
        add_op(step, slots, place);
      } else {
        add_callee(step, slots, place);
      }
    }
    std::vector<TensorId> results;
    results.reserve(recipe.results.size());
    for (int const slot : recipe.results) results.push_back(slots[static_cast<std::size_t>(slot)]);
    return results;
  }

  static std::string name_of(Step const& step, Place const& place) {
    return place.iteration < 0 ? std::string(step.name) : fmt::format("{}#{}", step.name, place.iteration);
  }

  void add_op(Step const& step, std::vector<TensorId>& slots, Place const& place) {
    spend(1);
    OpNode op = step.costs;
    op.name = name_of(step, place);
    op.layer = place.layer;
    for (int const slot : step.reads) {
      TensorId const tensor = slots[static_cast<std::size_t>(slot)];
      if (tensor != kNone) op.reads.push_back(tensor);
    }
    for (auto const& write : step.writes) {
      OpTensor tensor;
      tensor.name = op.name;
      tensor.bytes = write.bytes;
      if (write.over >= 0) tensor.alias_of = slots[static_cast<std::size_t>(write.over)];
      if (write.in_place_of >= 0) tensor.in_place_of = slots[static_cast<std::size_t>(write.in_place_of)];
      TensorId const id = graph_.add(std::move(tensor));
      slots[static_cast<std::size_t>(write.slot)] = id;
      op.writes.push_back(id);
    }
    if (step.is_rewritten) report_.reduce_scatter_bytes += static_cast<double>(op.collective.bytes);
    graph_.add(std::move(op));
  }

  void add_callee(Step const& step, std::vector<TensorId>& slots, Place const& place) {
    std::vector<TensorId> values;
    values.reserve(step.reads.size());
    for (int const slot : step.reads) values.push_back(slots[static_cast<std::size_t>(slot)]);
    for (std::int64_t i = 0; i < step.trips; ++i) {
      values = run(step.callee, values, step.kind == Step::Kind::loop ? iteration_of(step, i, place) : place);
    }
    for (std::size_t i = 0; i < step.results.size(); ++i) {
      slots[static_cast<std::size_t>(step.results[i])] = values[i];
    }
  }

  /// In a loop within a loop the outer loop's layer stays.
  [[nodiscard]] Place iteration_of(Step const& step, std::int64_t iteration, Place const& outer) const {
    Place place{.layer = outer.layer, .iteration = iteration};
    if (outer.layer != kNone) return place;
    place.layer = static_cast<int>(iteration);
    if (step.layer_instruction < 0) return place;
    auto const& body = module_.computations[static_cast<std::size_t>(step.callee)];
    auto const layer = evaluate(module_, body, step.layer_instruction,
                                {.rank = {}, .bound = step.counter, .value = step.first + iteration * step.stride});
    if (layer && *layer >= 0 && *layer < step.trips) place.layer = static_cast<int>(*layer);
    return place;
  }

  Module const& module_;
  std::vector<Recipe> const& recipes_;
  ImportHloOptions const& options_;
  OpGraph& graph_;
  HloReport& report_;
  std::size_t work_ = 0;
};

}  // namespace

Ends unroll(Module const& module, std::vector<Recipe> const& recipes, ImportHloOptions const& options, OpGraph& graph,
            HloReport& report) {
  return Unroller(module, recipes, options, graph, report).run();
}

}  // namespace weft::hlo
