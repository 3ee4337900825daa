#include <algorithm>
#include <istream>

#include "importers/chakra/flops.hpp"
#include "importers/chakra/nodes.hpp"
#include "importers/chakra/storages.hpp"
#include "importers/common/json_input.hpp"
#include "importers/common/process_groups.hpp"
#include "importers/common/unique_name.hpp"
#include "weft/import_chakra.hpp"

namespace weft {

namespace {

using namespace chakra;
using Json = nlohmann::json;

bool starts_with(std::string const& text, char const* beginning) {
  return text.rfind(beginning, 0) == 0;
}

bool contains(std::vector<TensorUse> const& uses, std::int64_t storage) {
  return std::any_of(uses.begin(), uses.end(), [&](TensorUse const& use) { return use.storage == storage; });
}

class ChakraImporter {
 public:
  ChakraImporter(Json const& json, std::string const& source) : storages_(result_.graph) {
    result_.graph.name = result_.report.source = source;
    nodes_ = read_nodes(json["nodes"], source, result_.report);
  }

  ImportedChakra run() {
    take_apart();
    find_notes();
    roles_.resize(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) take(i);
    storages_.finish();
    result_.report.operators = static_cast<std::int64_t>(result_.graph.ops.size());
    check_graph(result_.graph);
    return std::move(result_);
  }

 private:
  /// What a node is to the graph. It holds for the nodes within it, too, unless the node is taken apart.
  struct Role {
    OpId op = kNone;
    bool is_free = false;
    bool has_flops = false;  ///< nodes within count no flops of their own
    bool is_update = false;
  };

  [[nodiscard]] bool is_call(Node const& node) const {
    return node.collective && (node.collective->evidence == CollectiveEvidence::call ||
                               node.collective->evidence == CollectiveEvidence::params);
  }

  [[nodiscard]] static bool is_note(Node const& node) {
    return node.collective && node.collective->evidence == CollectiveEvidence::params;
  }

  void find_notes() {
    next_note_.assign(nodes_.size() + 1, nodes_.size());
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      next_note_[i] = is_note(nodes_[i]) ? i : next_note_[i + 1];
    }
  }

  void take_apart() {
    apart_.assign(nodes_.size(), false);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      has_calls_ = has_calls_ || is_call(nodes_[i]);
      if (!is_call(nodes_[i]) && nodes_[i].name != "PythonSubclass") continue;
      for (auto around = nodes_[i].parent; around != kNoParent; around = nodes_[around].parent) apart_[around] = true;
    }
  }

  [[nodiscard]] bool is_collective(Node const& node) const {
    // Where the trace has no calls, a back end's title stands in.
    return is_call(node) || (node.collective && !has_calls_);
  }

  void take(std::size_t i) {
    auto const& node = nodes_[i];
    auto const* const around = node.parent == kNoParent ? nullptr : &roles_[node.parent];
    Role& role = roles_[i];
    role.is_update = (around != nullptr && around->is_update) || starts_with(node.name, "Optimizer.step");
    if (starts_with(node.name, "## process_group:init")) read_groups(node);
    if (around != nullptr && (around->op != kNone || around->is_free)) {
      role = *around;
      add_part(node, role);
    } else if (is_collective(node)) {
      add_operator(node, role, written_by_collective(node));
      set_collective(i, result_.graph.ops.back());
    } else if (node.is_kernel) {
      add_operator(node, role, node.inputs);
      result_.report.warn("compiled kernel, taken to write all its arguments");
    } else if (node.schema.empty() || apart_[i]) {
      ++result_.report.free_entries;
    } else {
      add_or_free(node, role);
    }
  }

  void add_part(Node const& node, Role& role) {
    if (role.is_free) {
      ++result_.report.free_entries;
      return;
    }
    ++result_.report.within_others;
    if (auto const flops = flops_of(node); flops && !role.has_flops) {
      result_.graph.ops[static_cast<std::size_t>(role.op)].flops += *flops;
      role.has_flops = true;
    }
    for (auto const& use : node.outputs) {
      if (!contains(node.inputs, use.storage)) storages_.make_within(role.op, use.storage);
    }
  }

  void add_or_free(Node const& node, Role& role) {
    auto const written = written_by_schema(node);
    bool const makes = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](TensorUse const& use) { return !contains(node.inputs, use.storage); });
    if (makes && (starts_with(node.name, "aten::empty") || starts_with(node.name, "aten::new_empty"))) {
      for (auto const& use : node.outputs) storages_.allocate(use.storage);
    } else if (makes || !written.empty()) {
      add_operator(node, role, written);
      return;
    }
    role.is_free = true;
    ++result_.report.free_entries;
  }

  [[nodiscard]] static std::vector<TensorUse> written_by_schema(Node const& node) {
    std::vector<TensorUse> written;
    for (auto const& use : node.inputs) {
      if (use.argument < node.writes_argument.size() && node.writes_argument[use.argument]) written.push_back(use);
    }
    return written;
  }

  /// What a collective writes: its schema does not say it.
  [[nodiscard]] static std::vector<TensorUse> written_by_collective(Node const& node) {
    std::vector<TensorUse> written;
    for (auto const& use : node.outputs) {
      if (contains(node.inputs, use.storage)) written.push_back(use);
    }
    return written.empty() && node.outputs.empty() ? node.inputs : written;
  }

  void add_operator(Node const& node, Role& role, std::vector<TensorUse> const& written) {
    auto& graph = result_.graph;
    OpId const op = graph.add(OpNode{.name = names_.next(node.name)});
    role.op = op;
    if (role.is_update) graph.ops.back().kind = OpKind::update;
    for (auto const& use : node.inputs) {
      graph.ops.back().memory_bytes += static_cast<double>(use.bytes);
      bool const only_written = contains(written, use.storage) && storages_.is_empty(use.storage);
      if (!only_written) storages_.read(op, use.storage, use.extent);
    }
    for (auto const& use : written) storages_.write(op, use.storage, use.extent);
    for (auto const& use : node.outputs) {
      graph.ops.back().memory_bytes += static_cast<double>(use.bytes);
      if (!contains(node.inputs, use.storage)) storages_.make(op, use.storage, use.extent);
    }
    if (auto const flops = flops_of(node)) {
      graph.ops.back().flops = *flops;
      role.has_flops = true;
    }
  }

  void read_groups(Node const& node) {
    auto const* const json = node.json;
    if (!json->contains("inputs") || !(*json)["inputs"].is_object() || !(*json)["inputs"].contains("values")) return;
    for (auto const& value : (*json)["inputs"]["values"]) {
      if (!value.is_string()) continue;
      auto const list = Json::parse(value.get<std::string>(), nullptr, false);
      if (!list.is_array()) continue;
      groups_.add(list);
      for (auto const& entry : list) world_ = std::max(world_, whole_in(entry, "group_size", 0));
    }
    groups_.set_world(world_);
  }

  void set_collective(std::size_t i, OpNode& op) {
    auto const& node = nodes_[i];
    auto const& note = note_of(i);
    auto kind = node.collective->kind;
    if (!kind) kind = kind_of(note);
    if (!kind) result_.report.warn("collective of an unknown kind, taken for an all_reduce");
    op.kind = OpKind::collective;
    op.collective.kind = kind.value_or(CollectiveKind::all_reduce);
    op.collective.group = group_of(note);
    op.collective.bytes = std::max(largest(node.inputs), largest(node.outputs));
    ++result_.report.collectives;
    result_.report.collective_bytes += static_cast<double>(op.collective.bytes);
  }

  /// The node "record_param_comms" of a call: it lies within the call, or is the call itself.
  [[nodiscard]] Node const& note_of(std::size_t call) const {
    auto const note = next_note_[call];
    if (note == nodes_.size()) return nodes_[call];
    for (auto around = note; around != kNoParent; around = nodes_[around].parent) {
      if (around == call) return nodes_[note];
    }
    return nodes_[call];
  }

  [[nodiscard]] static std::optional<CollectiveKind> kind_of(Node const& note) {
    auto const name = attribute(*note.json, "collective_name");
    if (name.is_string()) return collective_kind_named(name.get<std::string>());
    if (!note.json->contains("inputs") || !(*note.json)["inputs"].is_object()) return std::nullopt;
    auto const& inputs = (*note.json)["inputs"];
    if (!inputs.contains("values") || !inputs["values"].is_array()) return std::nullopt;
    for (auto const& value : inputs["values"]) {
      if (!value.is_string()) continue;
      if (auto const kind = collective_kind_named(value.get<std::string>())) return kind;
    }
    return std::nullopt;
  }

  GroupId group_of(Node const& note) {
    auto const number = [&](char const* name, std::int64_t otherwise) {
      return whole_in(Json{{name, attribute(*note.json, name)}}, name, otherwise);
    };
    GroupFacts facts{.size = number("pg_size", 0),
                     .first_rank = number("global_rank_start", 0),
                     .stride = number("global_rank_stride", 1)};
    if (auto const name = attribute(*note.json, "pg_name"); name.is_string()) facts.name = name.get<std::string>();
    auto group = groups_.group_of(facts, result_.graph);
    if (group == kNone) {
      result_.report.warn("collective without a group, taken for one of two ranks");
      group = groups_.group_of({.size = 2}, result_.graph);
    }
    return group;
  }

  /// Bytes of the largest argument, or result.
  [[nodiscard]] static std::int64_t largest(std::vector<TensorUse> const& uses) {
    std::int64_t most = 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      bytes = (i > 0 && uses[i].argument == uses[i - 1].argument ? bytes : 0) + uses[i].bytes;
      most = std::max(most, bytes);
    }
    return most;
  }

  ImportedChakra result_;
  std::vector<Node> nodes_;
  std::vector<bool> apart_;
  std::vector<std::size_t> next_note_;  ///< by node: the next note from there on; nodes_.size() where there is none
  std::vector<Role> roles_;
  bool has_calls_ = false;
  Storages storages_;
  ProcessGroups groups_;
  std::int64_t world_ = 0;
  UniqueNames names_;
};

}  // namespace

ImportedChakra import_chakra(std::istream& in, std::string const& source) {
  Json const json = read_json_list(in, source, "nodes");
  return ChakraImporter(json, source).run();
}

}  // namespace weft
