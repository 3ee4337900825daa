#include "importers/hlo/reduce_scatter.hpp"

#include <algorithm>

#include "importers/hlo/attributes.hpp"
#include "importers/hlo/evaluate.hpp"

namespace weft::hlo {
namespace {

class Finder {
 public:
  Finder(Module const& module, Computation const& computation, Flow const& flow, Groups& groups)
      : module_(module), computation_(computation), flow_(flow), groups_(groups) {}

  std::unordered_map<int, int> run() {
    std::unordered_map<int, int> found;
    if (!has_all_reduce()) return found;
    count_readers();
    auto const count = static_cast<int>(computation_.instructions.size());
    for (int i = 0; i < count; ++i) {
      if (at(i).opcode != "dynamic-slice" || flow_.roles[static_cast<std::size_t>(i)] != Role::pointwise) continue;
      int const reduced = all_reduce_behind(i);
      if (reduced >= 0 && takes_own_part(at(i), at(reduced))) found.emplace(i, reduced);
    }
    return found;
  }

 private:
  [[nodiscard]] Instruction const& at(int index) const {
    return computation_.instructions[static_cast<std::size_t>(index)];
  }

  [[nodiscard]] bool has_all_reduce() const {
    return std::any_of(computation_.instructions.begin(), computation_.instructions.end(),
                       [](auto const& i) { return i.opcode == "all-reduce"; });
  }

  /// Counts the readers of each slot among what runs; the root counts as one.
  void count_readers() {
    readers_.assign(flow_.slots.size(), 0);
    for (std::size_t i = 0; i < computation_.instructions.size(); ++i) {
      if (flow_.roles[i] == Role::nothing || flow_.roles[i] == Role::view || flow_.roles[i] == Role::done) continue;
      for (int const operand : computation_.instructions[i].operands) {
        for (int const slot : flow_.of(operand)) ++readers_[static_cast<std::size_t>(slot)];
      }
    }
    for (int const slot : flow_.of(computation_.root)) ++readers_[static_cast<std::size_t>(slot)];
  }

  [[nodiscard]] int all_reduce_behind(int slice) const {
    int index = slice;
    for (int hops = 0; hops < 8; ++hops) {
      if (at(index).operands.empty()) return -1;
      auto const slots = flow_.of(at(index).operands.front());
      if (slots.size() != 1 || readers_[static_cast<std::size_t>(slots.front())] != 1) return -1;
      index = flow_.slots[static_cast<std::size_t>(slots.front())].made_by;
      if (index < 0) return -1;
      if (at(index).opcode == "all-reduce") return at(index).shape.is_tuple ? -1 : index;
      bool const same_elements = at(index).opcode == "convert" || at(index).opcode == "copy" ||
                                 at(index).opcode == "transpose" || at(index).opcode == "reduce-precision";
      if (!same_elements) return -1;
    }
    return -1;
  }

  [[nodiscard]] bool takes_own_part(Instruction const& slice, Instruction const& reduced) {
    auto const& whole = at(slice.operands.front()).shape;
    if (slice.operands.size() != whole.dims.size() + 1 || slice.shape.dims.size() != whole.dims.size()) return false;
    auto const& group = groups_[groups_.of(reduced)];
    auto const ranks = static_cast<std::int64_t>(group.sets.front().size());
    int divided = -1;
    for (std::size_t i = 0; i < whole.dims.size(); ++i) {
      if (slice.shape.dims[i] == whole.dims[i]) continue;
      if (divided >= 0) return false;
      divided = static_cast<int>(i);
    }
    if (divided < 0) return false;
    auto const length = slice.shape.dims[static_cast<std::size_t>(divided)];
    if (length * ranks != whole.dims[static_cast<std::size_t>(divided)]) return false;
    auto const& starts = starts_of(slice.operands[static_cast<std::size_t>(divided) + 1]);
    return std::all_of(group.sets.begin(), group.sets.end(),
                       [&](auto const& set) { return covers(set, starts, length); });
  }

  /// Whether every part of the whole belongs to exactly one rank of the set.
  static bool covers(std::vector<int> const& set, std::vector<std::int64_t> const& starts, std::int64_t length) {
    std::vector<bool> taken(set.size());
    for (int const rank : set) {
      if (static_cast<std::size_t>(rank) >= starts.size()) return false;
      auto const start = starts[static_cast<std::size_t>(rank)];
      if (start < 0 || start % length != 0) return false;
      auto const part = static_cast<std::size_t>(start / length);
      if (part >= taken.size() || taken[part]) return false;
      taken[part] = true;
    }
    return true;
  }

  /// The starts of the slice, for every rank for which they are known.
  std::vector<std::int64_t> const& starts_of(int instruction) {
    auto const [found, is_new] = starts_.try_emplace(instruction);
    if (is_new) found->second = evaluate_by_rank(module_, computation_, instruction, groups_.ranks());
    return found->second;
  }

  Module const& module_;
  Computation const& computation_;
  Flow const& flow_;
  Groups& groups_;
  std::vector<int> readers_;
  std::unordered_map<int, std::vector<std::int64_t>> starts_;
};

}  // namespace

std::unordered_map<int, int> find_reduce_scatters(Module const& module, Computation const& computation,
                                                  Flow const& flow, Groups& groups) {
  return Finder(module, computation, flow, groups).run();
}

}  // namespace weft::hlo
