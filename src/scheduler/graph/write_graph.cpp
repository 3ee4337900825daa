#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/graph/names.hpp"
#include "scheduler/graph/strided_group.hpp"
#include "weft/op_graph_json.hpp"

namespace weft {

namespace {

using OrderedJson = nlohmann::ordered_json;
using Names = std::vector<std::string>;

std::string const& name_in(Names const& names, std::int32_t id) {
  return names[static_cast<std::size_t>(id)];
}

OrderedJson names_in(Names const& names, std::vector<std::int32_t> const& ids) {
  OrderedJson list = OrderedJson::array();
  for (auto const id : ids) list.push_back(name_in(names, id));
  return list;
}

OrderedJson group_json(OpGroup const& group, std::string const& name) {
  OrderedJson json = {{"name", name}};
  if (auto const strided = strided_sets(group)) {
    json["strided"] = {{"ranks", strided->ranks}, {"size", strided->size}, {"stride", strided->stride}};
  } else {
    json["sets"] = group.sets;
  }
  return json;
}

OrderedJson tensor_json(OpTensor const& tensor, std::string const& name, Names const& tensors) {
  OrderedJson json = {{"name", name}, {"bytes", tensor.bytes}};
  if (tensor.kept) json["kept"] = true;
  if (tensor.alias_of != kNone) json["alias_of"] = name_in(tensors, tensor.alias_of);
  if (tensor.in_place_of != kNone) json["in_place_of"] = name_in(tensors, tensor.in_place_of);
  return json;
}

struct AllNames {
  explicit AllNames(OpGraph const& graph)
      : ops(unique_names(graph.ops, "op")),
        tensors(unique_names(graph.tensors, "tensor")),
        groups(unique_names(graph.groups, "group")) {}
  Names ops;
  Names tensors;
  Names groups;
};

OrderedJson op_json(OpNode const& op, std::string const& name, AllNames const& names) {
  OrderedJson json = {{"name", name}, {"kind", to_string(op.kind)}};
  if (op.flops > 0) json["flops"] = op.flops;
  if (op.memory_bytes > 0) json["memory_bytes"] = op.memory_bytes;
  if (op.seconds) json["seconds"] = *op.seconds;
  if (op.kind == OpKind::collective) {
    json["collective"] = {{"kind", to_string(op.collective.kind)},
                          {"bytes", op.collective.bytes},
                          {"group", name_in(names.groups, op.collective.group)}};
  }
  if (op.layer != kNone) json["layer"] = op.layer;
  if (op.repeatable) json["repeatable"] = *op.repeatable;
  if (!op.reads.empty()) json["reads"] = names_in(names.tensors, op.reads);
  if (!op.writes.empty()) json["writes"] = names_in(names.tensors, op.writes);
  if (!op.after.empty()) json["after"] = names_in(names.ops, op.after);
  return json;
}

/// Writes one entry per line, so that two graphs can be compared with diff.
template <typename Print>
void list(std::ostream& out, char const* key, std::size_t size, Print const& print) {
  out << ",\n\"" << key << "\": [";
  for (std::size_t i = 0; i < size; ++i) out << (i > 0 ? ",\n" : "\n") << print(i).dump();
  out << "]";
}

}  // namespace

void write_graph(OpGraph const& graph, std::ostream& out) {
  AllNames const names(graph);
  out << "{\"weft_graph\": 1, \"name\": " << OrderedJson(graph.name).dump();
  list(out, "groups", graph.groups.size(), [&](auto i) { return group_json(graph.groups[i], names.groups[i]); });
  list(out, "tensors", graph.tensors.size(),
       [&](auto i) { return tensor_json(graph.tensors[i], names.tensors[i], names.tensors); });
  list(out, "ops", graph.ops.size(), [&](auto i) { return op_json(graph.ops[i], names.ops[i], names); });
  out << "}\n";
}

void name_uniquely(OpGraph& graph) {
  AllNames names(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) graph.ops[i].name = std::move(names.ops[i]);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) graph.tensors[i].name = std::move(names.tensors[i]);
  for (std::size_t i = 0; i < graph.groups.size(); ++i) graph.groups[i].name = std::move(names.groups[i]);
}

}  // namespace weft
