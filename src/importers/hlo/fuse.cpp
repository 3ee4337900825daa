#include "importers/hlo/fuse.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <unordered_set>

namespace weft::hlo {
namespace {

struct Edge {
  int to = -1;
  bool joins = false;  ///< whether both ends may be in one operator
};

class Fuser {
 public:
  Fuser(Computation const& computation, Flow const& flow, std::unordered_map<int, int> const& replaced, bool fuse)
      : computation_(computation), flow_(flow), replaced_(replaced), fuse_(fuse), count_(size_of(computation)) {
    for (auto const& [slice, reduced] : replaced) gone_.insert(reduced);
  }

  Units run() {
    find_sources();
    find_reads();
    find_live();
    find_edges();
    find_levels();
    join();
    number_units();
    order_units();
    find_escapes();
    return std::move(units_);
  }

 private:
  static std::size_t size_of(Computation const& computation) { return computation.instructions.size(); }
  [[nodiscard]] Instruction const& at(std::size_t index) const { return computation_.instructions[index]; }
  [[nodiscard]] Slot const& slot(int index) const { return flow_.slots[static_cast<std::size_t>(index)]; }
  [[nodiscard]] bool is_replaced(std::size_t index) const { return replaced_.contains(static_cast<int>(index)); }

  /// Whether the instruction is done again in each reader.
  [[nodiscard]] bool repeats(std::size_t index) const {
    auto const& here = at(index);
    if (!fuse_ || flow_.roles[index] != Role::pointwise || is_replaced(index)) return false;
    if (!is_repeated(computation_, here)) return false;
    if (here.opcode != "dynamic-slice" || here.operands.empty()) return here.opcode != "dynamic-slice";
    return std::all_of(here.operands.begin() + 1, here.operands.end(), [&](int operand) {
      auto const slots = flow_.of(operand);
      return slots.empty() || slot(slots.front()).fixed;
    });
  }

  void find_sources() {
    repeats_.resize(count_);
    sources_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      repeats_[i] = repeats(i);
      if (!repeats_[i] || at(i).operands.empty()) continue;
      auto const slots = flow_.of(at(i).operands.front());
      if (slots.size() != 1) continue;
      sources_[i] = source(slots.front());
      sources_[i].elements = std::min(sources_[i].elements, at(i).shape.elements);
      sources_[i].in_order = sources_[i].in_order && at(i).opcode == "convert";
    }
  }

  /// What is read in place of a slot: the slot itself, or, if it is made again in each reader, what it is made from.
  [[nodiscard]] Read source(int wanted) const {
    auto const& here = slot(wanted);
    if (here.fixed) return {};
    if (here.made_by >= 0 && repeats_[static_cast<std::size_t>(here.made_by)]) {
      return sources_[static_cast<std::size_t>(here.made_by)];
    }
    return {.slot = wanted, .elements = here.elements};
  }

  void add_read(std::size_t index, Read read) {
    if (read.slot >= 0 && !slot(read.slot).fixed) units_.reads[index].push_back(read);
  }

  void add_whole(std::size_t index, int operand) {
    for (int const wanted : flow_.of(operand)) {
      add_read(index, {.slot = wanted, .elements = slot(wanted).elements});
    }
  }

  void find_reads() {
    units_.reads.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      auto const& here = at(i);
      Role const role = flow_.roles[i];
      if (role == Role::nothing || role == Role::view || role == Role::done) continue;
      if (is_replaced(i)) {
        for (int const operand : at(static_cast<std::size_t>(replaced_.at(static_cast<int>(i)))).operands) {
          add_whole(i, operand);
        }
      } else if (role == Role::pointwise || role == Role::reduce || role == Role::update_slice) {
        find_fused_reads(i, role);
      } else {
        for (int const operand : here.operands) add_whole(i, operand);
      }
    }
  }

  void find_fused_reads(std::size_t index, Role role) {
    auto const& here = at(index);
    for (std::size_t k = 0; k < here.operands.size(); ++k) {
      auto const slots = flow_.of(here.operands[k]);
      if (slots.size() != 1) {
        add_whole(index, here.operands[k]);
      } else if (role == Role::update_slice && k == 0) {
        add_read(index, {.slot = slots.front(), .elements = 0, .lies_there = false});
      } else {
        Read read = source(slots.front());
        bool const takes_part = here.opcode == "slice" || here.opcode == "dynamic-slice";
        if (takes_part) read.elements = std::min(read.elements, here.shape.elements);
        if (role == Role::update_slice || moves_elements(here.opcode)) read.in_order = false;
        add_read(index, read);
      }
    }
  }

  [[nodiscard]] bool does_more(std::size_t index) const {
    Role const role = flow_.roles[index];
    if (gone_.contains(static_cast<int>(index))) return false;
    if (role == Role::collective || role == Role::control) return true;
    static std::unordered_set<std::string_view> const opcodes{"custom-call", "send", "recv", "infeed", "outfeed"};
    return role == Role::kernel && opcodes.contains(at(index).opcode);
  }

  void find_live() {
    live_.assign(count_, false);
    auto const want = [&](int wanted) {
      int const maker = slot(wanted).made_by;
      if (maker >= 0 && !slot(wanted).fixed) live_[static_cast<std::size_t>(maker)] = true;
    };
    for (int const wanted : flow_.of(computation_.root)) want(wanted);
    for (std::size_t i = count_; i-- > 0;) {
      if (does_more(i)) live_[i] = true;
      if (!live_[i]) continue;
      for (auto const& read : units_.reads[i]) want(read.slot);
    }
  }

  /// How many elements an instruction's operator goes over.
  [[nodiscard]] std::int64_t extent(std::size_t index) const {
    auto const& here = at(index);
    if (flow_.roles[index] == Role::pointwise) return here.shape.elements;
    std::size_t const k = flow_.roles[index] == Role::update_slice ? 1 : 0;
    return at(static_cast<std::size_t>(here.operands[k])).shape.elements;
  }

  [[nodiscard]] bool joins(std::size_t maker, std::size_t reader, Read const& read) const {
    if (!fuse_ || flow_.roles[maker] != Role::pointwise || is_replaced(maker) || is_replaced(reader)) return false;
    Role const role = flow_.roles[reader];
    if (role != Role::pointwise && role != Role::reduce && role != Role::update_slice) return false;
    return read.lies_there && at(maker).shape.elements == extent(reader);
  }

  void find_edges() {
    readers_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      if (!live_[i]) continue;
      for (auto const& read : units_.reads[i]) {
        int const maker = slot(read.slot).made_by;
        if (maker < 0) continue;
        auto const from = static_cast<std::size_t>(maker);
        readers_[from].push_back({.to = static_cast<int>(i), .joins = joins(from, i, read)});
      }
    }
  }

  /// Gives each instruction a level above that of all it reads; only one that it may join can be on the same level. As
  /// instructions join only within a level, that never makes a cycle.
  void find_levels() {
    level_.assign(count_, 0);
    for (std::size_t i = 0; i < count_; ++i) {
      for (auto const& edge : readers_[i]) {
        int& level = level_[static_cast<std::size_t>(edge.to)];
        level = std::max(level, level_[i] + (edge.joins ? 0 : 1));
      }
    }
  }

  void join() {
    leader_.resize(count_);
    std::iota(leader_.begin(), leader_.end(), 0);
    std::vector<bool> is_result(flow_.slots.size());
    for (int const wanted : flow_.of(computation_.root)) is_result[static_cast<std::size_t>(wanted)] = true;
    for (std::size_t i = count_; i-- > 0;) {
      if (!live_[i] || flow_.roles[i] != Role::pointwise || readers_[i].empty()) continue;
      auto const slots = flow_.of(static_cast<int>(i));
      if (!slots.empty() && !is_result[static_cast<std::size_t>(slots.front())]) sink(i);
      for (auto const& edge : readers_[i]) {
        if (edge.joins && level_[static_cast<std::size_t>(edge.to)] == level_[i]) unite(static_cast<int>(i), edge.to);
      }
    }
  }

  /// Raises an instruction whose readers are all in one operator to their level.
  void sink(std::size_t index) {
    auto const& readers = readers_[index];
    int const unit = find(readers.front().to);
    bool const all_in_one = std::all_of(readers.begin(), readers.end(),
                                        [&](Edge const& edge) { return edge.joins && find(edge.to) == unit; });
    if (all_in_one) level_[index] = level_[static_cast<std::size_t>(readers.front().to)];
  }

  int find(int index) {
    while (leader_[static_cast<std::size_t>(index)] != index) {
      int& above = leader_[static_cast<std::size_t>(index)];
      above = leader_[static_cast<std::size_t>(above)];
      index = above;
    }
    return index;
  }

  void unite(int a, int b) {
    a = find(a);
    b = find(b);
    leader_[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
  }

  void number_units() {
    units_.of.assign(count_, -1);
    for (std::size_t i = 0; i < count_; ++i) {
      if (!live_[i] || flow_.roles[i] == Role::nothing) continue;
      auto const first = static_cast<std::size_t>(find(static_cast<int>(i)));
      if (units_.of[first] < 0) {
        units_.of[first] = static_cast<int>(units_.members.size());
        units_.members.emplace_back();
      }
      units_.of[i] = units_.of[first];
      units_.members[static_cast<std::size_t>(units_.of[i])].push_back(static_cast<int>(i));
    }
  }

  /// Orders the units: of those that can be next always the one that begins first in the text.
  void order_units() {
    auto const count = units_.members.size();
    std::vector<std::vector<int>> later(count);
    std::vector<int> missing(count, 0);
    for (std::size_t i = 0; i < count_; ++i) {
      for (auto const& edge : readers_[i]) {
        int const from = units_.of[i];
        int const to = units_.of[static_cast<std::size_t>(edge.to)];
        if (from < 0 || to < 0 || from == to) continue;
        later[static_cast<std::size_t>(from)].push_back(to);
        ++missing[static_cast<std::size_t>(to)];
      }
    }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (std::size_t u = 0; u < count; ++u) {
      if (missing[u] == 0) ready.push(static_cast<int>(u));
    }
    std::vector<std::vector<int>> ordered;
    while (!ready.empty()) {
      auto const unit = static_cast<std::size_t>(ready.top());
      ready.pop();
      for (int const next : later[unit]) {
        if (--missing[static_cast<std::size_t>(next)] == 0) ready.push(next);
      }
      for (int const member : units_.members[unit]) {
        units_.of[static_cast<std::size_t>(member)] = static_cast<int>(ordered.size());
      }
      ordered.push_back(std::move(units_.members[unit]));
    }
    units_.members = std::move(ordered);
  }

  void find_escapes() {
    units_.escapes.assign(flow_.slots.size(), false);
    for (int const wanted : flow_.of(computation_.root)) units_.escapes[static_cast<std::size_t>(wanted)] = true;
    for (std::size_t i = 0; i < count_; ++i) {
      if (units_.of[i] < 0) continue;
      for (auto const& read : units_.reads[i]) {
        int const maker = slot(read.slot).made_by;
        if (maker >= 0 && units_.of[static_cast<std::size_t>(maker)] != units_.of[i]) {
          units_.escapes[static_cast<std::size_t>(read.slot)] = true;
        }
      }
    }
  }

  Computation const& computation_;
  Flow const& flow_;
  std::unordered_map<int, int> const& replaced_;
  bool fuse_;
  std::size_t count_;
  std::unordered_set<int> gone_;
  std::vector<bool> repeats_;
  std::vector<Read> sources_;
  std::vector<bool> live_;
  std::vector<std::vector<Edge>> readers_;
  std::vector<int> level_;
  std::vector<int> leader_;
  Units units_;
};

}  // namespace

Units fuse_units(Computation const& computation, Flow const& flow, std::unordered_map<int, int> const& replaced,
                 bool fuse) {
  return Fuser(computation, flow, replaced, fuse).run();
}

}  // namespace weft::hlo
