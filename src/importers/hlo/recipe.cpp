#include "importers/hlo/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "importers/hlo/attributes.hpp"
#include "importers/hlo/call_order.hpp"
#include "importers/hlo/costs.hpp"
#include "importers/hlo/evaluate.hpp"
#include "importers/hlo/flow.hpp"
#include "importers/hlo/fuse.hpp"
#include "importers/hlo/reduce_scatter.hpp"
#include "importers/hlo/trip_count.hpp"

namespace weft::hlo {
namespace {

double price(Recipe const& recipe) {
  constexpr double kFlopsOfByte = 300;
  constexpr double kMemoryOfLink = 10;
  return recipe.flops / kFlopsOfByte + recipe.memory_bytes + kMemoryOfLink * recipe.collective_bytes;
}

/// By text: the place of a warning in the report.
using WarningIndex = std::unordered_map<std::string, std::size_t>;

/// Writes the recipe of one computation; the recipes of its callees are there.
class RecipeWriter {
 public:
  RecipeWriter(Module const& module, int computation, int counter, Groups& groups, ImportHloOptions const& options,
               std::vector<Recipe> const& recipes, HloReport& report, WarningIndex& warnings)
      : module_(module),
        computation_(module.computations[static_cast<std::size_t>(computation)]),
        groups_(groups),
        options_(options),
        recipes_(recipes),
        report_(report),
        warnings_(warnings),
        flow_(trace_flow(module, computation_, counter)) {}

  Recipe run() {
    if (options_.rewrite_reduce_scatters) {
      replaced_ = find_reduce_scatters(module_, computation_, flow_, groups_);
    }
    units_ = fuse_units(computation_, flow_, replaced_, options_.fuse);
    recipe_.slots = static_cast<int>(flow_.slots.size());
    recipe_.parameters = flow_.parameters;
    auto const results = flow_.of(computation_.root);
    recipe_.results.assign(results.begin(), results.end());
    count_readers();
    recipe_.parameter_bytes = bytes_of(recipe_.parameters);
    recipe_.result_bytes = bytes_of(recipe_.results);
    for (auto const& members : units_.members) add_unit(members);
    report_.free_instructions += flow_.views;
    add_unfused_bytes();
    return std::move(recipe_);
  }

 private:
  [[nodiscard]] Instruction const& at(int index) const {
    return computation_.instructions[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Slot const& slot(int index) const { return flow_.slots[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Role role(int index) const { return flow_.roles[static_cast<std::size_t>(index)]; }
  [[noreturn]] void refuse(int index, std::string const& what) const {
    fail(module_, at(index).position, fmt::format("{} {}: {}", at(index).opcode, at(index).name, what));
  }

  [[nodiscard]] std::vector<std::int64_t> bytes_of(std::vector<int> const& slots) const {
    std::vector<std::int64_t> bytes;
    bytes.reserve(slots.size());
    for (int const index : slots) bytes.push_back(slot(index).bytes);
    return bytes;
  }

  void add_unit(std::vector<int> const& members) {
    int const last = members.back();
    Step step;
    step.name = at(last).name;
    if (members.size() > 1) {
      ++report_.fusions;
      report_.fused_instructions += static_cast<std::int64_t>(members.size());
    }
    if (replaced_.contains(last)) {
      add_collective(std::move(step), last, replaced_.at(last));
    } else if (role(last) == Role::collective) {
      add_collective(std::move(step), last, last);
    } else if (role(last) == Role::control) {
      add_control(std::move(step), last);
    } else {
      add_compute(std::move(step), members);
    }
  }

  void finish(Step step) {
    std::sort(step.reads.begin(), step.reads.end());
    step.reads.erase(std::unique(step.reads.begin(), step.reads.end()), step.reads.end());
    recipe_.flops += step.costs.flops;
    recipe_.memory_bytes += step.costs.memory_bytes;
    if (step.costs.kind == OpKind::collective) {
      recipe_.collective_bytes += static_cast<double>(step.costs.collective.bytes);
    }
    recipe_.steps.push_back(std::move(step));
  }

  void read_all(Step& step, int index) const {
    for (auto const& read : units_.reads[static_cast<std::size_t>(index)]) step.reads.push_back(read.slot);
  }

  /// An asynchronous start has its operands before its results in its shape; only the results are written.
  void write_all(Step& step, int index) const {
    auto made_slots = flow_.of(index);
    std::size_t given = 0;
    for (int const operand : at(index).operands) given += flow_.of(operand).size();
    if (at(index).opcode.ends_with("-start") && made_slots.size() > given) made_slots = made_slots.subspan(given);
    for (int const made : made_slots) {
      if (!slot(made).fixed) step.writes.push_back({.slot = made, .bytes = slot(made).bytes});
    }
  }

  [[nodiscard]] std::int64_t operand_bytes(int index) const {
    std::int64_t bytes = 0;
    for (int const operand : at(index).operands) bytes += at(operand).shape.bytes;
    return bytes;
  }

  /// In a ragged-all-to-all the second operand is where the result goes, and the others say what goes where.
  [[nodiscard]] bool is_ragged(int index) const { return at(index).opcode == "ragged-all-to-all"; }

  /// Checks that the result has the bytes that ranks give one another. Not for asynchronous starts, whose shape has the
  /// operand as well, nor where some ranks get more than others.
  void check_result(int index, OpCollective const& collective) const {
    if (is_ragged(index)) return;
    auto const& opcode = at(index).opcode;
    constexpr std::string_view kBegun = "-start";
    if (opcode.size() > kBegun.size() && opcode.compare(opcode.size() - kBegun.size(), kBegun.size(), kBegun) == 0)
      return;
    auto const ranks = groups_[collective.group].sets.front().size();
    auto const shared = collective.kind == CollectiveKind::reduce_scatter ? static_cast<std::int64_t>(ranks) : 1;
    auto const wanted = collective.bytes / shared;
    auto const has = at(index).shape.bytes;
    if (has == wanted && collective.bytes % shared == 0) return;
    refuse(index, fmt::format("it has {} bytes, and {} of {} bytes among {} ranks {}", has, to_string(collective.kind),
                              operand_bytes(index), ranks, wanted));
  }

  /// `made` is the instruction that has the result, `moved` that which communicates.
  void add_collective(Step step, int made, int moved) {
    read_all(step, made);
    write_all(step, made);
    step.costs.kind = OpKind::collective;
    auto& collective = step.costs.collective;
    collective.kind = collective_of(at(moved).opcode).value_or(CollectiveKind::all_reduce);
    collective.group = groups_.of(at(moved));
    bool const sends_first = is_ragged(moved) && !at(moved).operands.empty();
    auto const given = sends_first ? at(at(moved).operands.front()).shape.bytes : operand_bytes(moved);
    collective.bytes = given;
    if (collective.kind == CollectiveKind::all_gather) {
      auto const ranks = static_cast<std::int64_t>(groups_[collective.group].sets.front().size());
      if (__builtin_mul_overflow(given, ranks, &collective.bytes)) refuse(moved, "more bytes than can be counted");
    }
    check_result(moved, collective);
    if (made != moved) {
      collective.kind = CollectiveKind::reduce_scatter;
      step.is_rewritten = true;
      step.name = at(moved).name;
      ++report_.reduce_scatters;
    }
    finish(std::move(step));
  }

  void add_compute(Step step, std::vector<int> const& members) {
    add_costs(step, members);
    std::unordered_map<int, std::int64_t> elements_read;
    int const unit = units_.of[static_cast<std::size_t>(members.front())];
    for (int const member : members) {
      for (auto const& read : units_.reads[static_cast<std::size_t>(member)]) {
        int const maker = slot(read.slot).made_by;
        if (maker >= 0 && units_.of[static_cast<std::size_t>(maker)] == unit) continue;
        step.reads.push_back(read.slot);
        auto& so_far = elements_read[read.slot];
        so_far = std::min(slot(read.slot).elements, so_far + read.elements);
      }
      add_writes(step, member, members.size() == 1);
    }
    if (role(members.back()) != Role::kernel) {
      for (auto const& [read, elements] : elements_read) step.costs.memory_bytes += bytes_of(slot(read), elements);
      write_in_place(step, members);
    }
    finish(std::move(step));
  }

  /// Finds where results may be written in place: over what this operator alone reads, if that has as many bytes and
  /// its elements are read where the result's are written.
  void write_in_place(Step& step, std::vector<int> const& members) const {
    int const unit = units_.of[static_cast<std::size_t>(members.front())];
    std::vector<int> given;
    std::unordered_set<int> in_other_order;
    for (int const member : members) {
      for (auto const& read : units_.reads[static_cast<std::size_t>(member)]) {
        int const maker = slot(read.slot).made_by;
        bool const within = maker >= 0 && units_.of[static_cast<std::size_t>(maker)] == unit;
        if (within && !read.in_order) return;
        if (!read.in_order || !read.lies_there) in_other_order.insert(read.slot);
        if (!within && readers_[static_cast<std::size_t>(read.slot)] == 1) given.push_back(read.slot);
      }
    }
    for (auto& write : step.writes) {
      auto const found = std::find_if(given.begin(), given.end(), [&](int index) {
        return !in_other_order.contains(index) && slot(index).bytes == write.bytes &&
               slot(index).elements == slot(write.slot).elements;
      });
      if (write.over >= 0 || found == given.end()) continue;
      write.in_place_of = *found;
      in_other_order.insert(*found);
    }
  }

  /// Counts how many operators read each slot; the caller counts as one.
  void count_readers() {
    readers_.assign(flow_.slots.size(), 0);
    for (int const result : recipe_.results) ++readers_[static_cast<std::size_t>(result)];
    for (auto const& members : units_.members) {
      std::unordered_set<int> read_here;
      for (int const member : members) {
        for (auto const& read : units_.reads[static_cast<std::size_t>(member)]) read_here.insert(read.slot);
      }
      for (int const index : read_here) ++readers_[static_cast<std::size_t>(index)];
    }
  }

  static double bytes_of(Slot const& slot, std::int64_t elements) {
    if (slot.elements == 0) return 0;
    return static_cast<double>(slot.bytes) * static_cast<double>(elements) / static_cast<double>(slot.elements);
  }

  void add_costs(Step& step, std::vector<int> const& members) {
    int const last = members.back();
    if (role(last) != Role::kernel) return;
    auto const cost = cost_of(module_, computation_, at(last));
    step.costs.flops = cost.flops;
    step.costs.memory_bytes = cost.bytes;
    if (!cost.unknown.empty()) warn(cost.unknown, cost.bytes);
  }

  /// Adds the results of a member that others read. A step that writes nothing would never be waited for, so one that
  /// is alone leaves what it has.
  void add_writes(Step& step, int member, bool alone) {
    auto const results = flow_.of(member);
    for (std::size_t i = 0; i < results.size(); ++i) {
      int const made = results[i];
      if (!alone && !units_.escapes[static_cast<std::size_t>(made)]) continue;
      if (slot(made).fixed) continue;
      Write write{.slot = made, .bytes = slot(made).bytes};
      auto const& operands = at(member).operands;
      bool const in_place = role(member) == Role::update_slice || at(member).opcode == "scatter";
      if (in_place && i < operands.size()) {  // a scatter into several arrays has the arrays as its first operands
        auto const over = flow_.of(operands[i]);
        if (!over.empty() && !slot(over.front()).fixed && slot(over.front()).bytes >= write.bytes) {
          write.over = over.front();
        }
      }
      step.writes.push_back(write);
      if (role(member) == Role::kernel) continue;
      auto const written = write.over >= 0 ? at(at(member).operands[1]).shape.bytes : write.bytes;
      step.costs.memory_bytes += static_cast<double>(written);
    }
  }

  void add_control(Step step, int index) {
    auto const& here = at(index);
    auto const called = callees(module_, here);
    if (called.empty()) refuse(index, "it names no computation");
    step.kind = here.opcode == "while" ? Step::Kind::loop : Step::Kind::call;
    step.callee = called.front();
    std::vector<int> arguments = here.operands;
    if (here.opcode == "conditional") arguments = {choose_branch(index, called, step)};
    for (int const argument : arguments) {
      for (int const leaf : flow_.of(argument)) step.reads.push_back(leaf);
    }
    for (int const leaf : flow_.of(index)) step.results.push_back(leaf);
    if (here.opcode == "async-start") take_async_results(index, step);
    if (step.kind == Step::Kind::loop) set_loop(index, step);
    auto const& recipe = recipes_[static_cast<std::size_t>(step.callee)];
    bool const loops = step.kind == Step::Kind::loop;
    if (recipe.parameter_bytes != bytes_of(step.reads) || recipe.result_bytes != bytes_of(step.results) ||
        (loops && recipe.parameter_bytes != recipe.result_bytes)) {
      refuse(index, "its operands or results are not those of the computation that it calls");
    }
    auto const trips = static_cast<double>(step.trips);
    recipe_.flops += trips * recipe.flops;
    recipe_.memory_bytes += trips * recipe.memory_bytes;
    recipe_.unfused_bytes += trips * recipe.unfused_bytes;
    recipe_.collective_bytes += trips * recipe.collective_bytes;
    recipe_.steps.push_back(std::move(step));
  }

  /// Returns the operand that the dearest branch is given.
  int choose_branch(int index, std::vector<int> const& branches, Step& step) {
    if (at(index).operands.size() != branches.size() + 1) refuse(index, "it needs an operand for each branch");
    ++report_.conditionals;
    std::size_t dearest = 0;
    for (std::size_t i = 1; i < branches.size(); ++i) {
      if (price(recipes_[static_cast<std::size_t>(branches[i])]) >
          price(recipes_[static_cast<std::size_t>(branches[dearest])])) {
        dearest = i;
      }
    }
    step.callee = branches[dearest];
    return at(index).operands[dearest + 1];
  }

  /// An asynchronous start has its operands, then its results, in its shape.
  void take_async_results(int index, Step& step) const {
    auto const wanted = recipes_[static_cast<std::size_t>(step.callee)].results.size();
    auto const skipped = step.reads.size();
    if (step.results.size() < skipped + wanted) refuse(index, "its shape has no room for operands and results");
    auto const begin = step.results.begin() + static_cast<std::ptrdiff_t>(skipped);
    step.results = std::vector<int>(begin, begin + static_cast<std::ptrdiff_t>(wanted));
  }

  void set_loop(int index, Step& step) {
    auto const trips = trip_count(module_, computation_, at(index));
    step.trips = trips.value_or(options_.unknown_trips);
    if (!trips) warn("while: number of iterations unknown", 0);
    report_.loops.push_back(
        {.name = std::string(at(index).name),
         .trips = step.trips,
         .known = trips.has_value(),
         .steps = static_cast<std::int64_t>(recipes_[static_cast<std::size_t>(step.callee)].steps.size())});
    auto const counter = find_counter(module_, at(index));
    if (!counter) return;
    step.counter = counter->element;
    step.stride = counter->step;
    step.first = first_count(module_, computation_, at(index), *counter).value_or(0);
    step.layer_instruction = layer_index(step);
  }

  /// The first index of the first slice that another iteration takes elsewhere: it indexes what is stacked by layers.
  [[nodiscard]] int layer_index(Step const& step) const {
    auto const& body = module_.computations[static_cast<std::size_t>(step.callee)];
    for (auto const& instruction : body.instructions) {
      if (instruction.opcode != "dynamic-slice" || instruction.operands.size() < 2) continue;
      int const index = instruction.operands[1];
      auto const of = [&](std::int64_t count) {
        return evaluate(module_, body, index, {.rank = {}, .bound = step.counter, .value = count});
      };
      if (of(0) && of(1) && *of(0) != *of(1)) return index;
    }
    return -1;
  }

  void warn(std::string const& what, double bytes) {
    auto const [found, is_new] = warnings_.try_emplace(what, report_.warnings.size());
    if (is_new) report_.warnings.push_back({.what = what});
    auto& warning = report_.warnings[found->second];
    ++warning.count;
    warning.bytes += bytes;
  }

  void add_unfused_bytes() {
    for (std::size_t i = 0; i < computation_.instructions.size(); ++i) {
      int const index = static_cast<int>(i);
      if (role(index) == Role::kernel && units_.of[i] >= 0) {
        recipe_.unfused_bytes += cost_of(module_, computation_, at(index)).bytes;
      } else if (role(index) == Role::pointwise || role(index) == Role::reduce || role(index) == Role::update_slice) {
        if (!replaced_.contains(index)) recipe_.unfused_bytes += alone_bytes(computation_, at(index));
      }
    }
  }

  Module const& module_;
  Computation const& computation_;
  Groups& groups_;
  ImportHloOptions const& options_;
  std::vector<Recipe> const& recipes_;
  HloReport& report_;
  WarningIndex& warnings_;
  Flow flow_;
  std::unordered_map<int, int> replaced_;
  Units units_;
  std::vector<int> readers_;
  Recipe recipe_;
};

/// By computation: if it is a loop's body, the element of its tuple that counts iterations, else -1.
std::vector<int> find_counters(Module const& module, std::vector<int> const& order) {
  std::vector<int> counters(module.computations.size(), -1);
  for (int const computation : order) {
    for (auto const& instruction : module.computations[static_cast<std::size_t>(computation)].instructions) {
      if (instruction.opcode != "while") continue;
      auto const body = computations(module, instruction, "body");
      auto const counter = find_counter(module, instruction);
      if (counter && body.size() == 1) counters[static_cast<std::size_t>(body.front())] = counter->element;
    }
  }
  return counters;
}

}  // namespace

std::vector<Recipe> write_recipes(Module const& module, Groups& groups, ImportHloOptions const& options,
                                  HloReport& report) {
  auto const order = call_order(module);
  auto const counters = find_counters(module, order);
  std::vector<Recipe> recipes(module.computations.size());
  WarningIndex warnings;
  for (int const computation : order) {
    auto const at = static_cast<std::size_t>(computation);
    recipes[at] = RecipeWriter(module, computation, counters[at], groups, options, recipes, report, warnings).run();
  }
  return recipes;
}

}  // namespace weft::hlo
