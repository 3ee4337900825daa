#include "importers/hlo/donate.hpp"

#include <algorithm>

#include "importers/hlo/cursor.hpp"

namespace weft::hlo {
namespace {

struct Donation {
  std::size_t result = 0;     ///< leaf
  std::size_t parameter = 0;  ///< leaf
};

/// The leaf at an index like {3} or {} or {1,0} of a shape.
std::size_t leaf_at(Cursor& cursor, Shape const* shape) {
  int leaf = 0;
  cursor.expect('{');
  for (cursor.skip_space(); !cursor.take('}'); cursor.skip_space()) {
    cursor.take(',');
    cursor.skip_space();
    auto const index = cursor.expect_integer("an index");
    if (index < 0 || static_cast<std::size_t>(index) >= shape->parts.size()) cursor.fail("an index of no part");
    shape = &shape->parts[static_cast<std::size_t>(index)];
    leaf += shape->first_leaf;
  }
  return static_cast<std::size_t>(leaf);
}

/// { {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
std::vector<Donation> read_donations(Module const& module) {
  std::vector<Donation> donations;
  auto const text = find(module.attributes, "input_output_alias");
  if (!text) return donations;
  auto const& entry = module.computations[static_cast<std::size_t>(module.entry)];
  std::vector<std::size_t> first_leaf;
  std::size_t leaves = 0;
  for (int const parameter : entry.parameters) {
    first_leaf.push_back(leaves);
    leaves += static_cast<std::size_t>(entry.instructions[static_cast<std::size_t>(parameter)].shape.leaves);
  }
  Cursor cursor(module, static_cast<std::size_t>(text->data() - module.text.data()));
  cursor.expect('{');
  for (cursor.skip_space(); !cursor.take('}'); cursor.skip_space()) {
    if (!donations.empty()) cursor.expect(',');
    cursor.skip_space();
    Donation donation;
    donation.result = leaf_at(cursor, &entry.instructions[static_cast<std::size_t>(entry.root)].shape);
    cursor.expect(':');
    cursor.expect('(');
    auto const parameter = cursor.expect_integer("a parameter");
    if (parameter < 0 || static_cast<std::size_t>(parameter) >= first_leaf.size()) cursor.fail("no such parameter");
    cursor.expect(',');
    cursor.skip_space();
    auto const at = static_cast<std::size_t>(entry.parameters[static_cast<std::size_t>(parameter)]);
    donation.parameter =
        first_leaf[static_cast<std::size_t>(parameter)] + leaf_at(cursor, &entry.instructions[at].shape);
    cursor.until(")", false);
    cursor.expect(')');
    donations.push_back(donation);
  }
  return donations;
}

}  // namespace

void donate(Module const& module, Ends const& ends, OpGraph& graph) {
  auto const tensor = [&](TensorId id) -> OpTensor& { return graph.tensors[static_cast<std::size_t>(id)]; };
  for (auto const parameter : ends.parameters) tensor(parameter).kept = true;
  auto const writers = writers_of(graph);
  for (auto const& [result, parameter] : read_donations(module)) {
    if (result >= ends.results.size() || parameter >= ends.parameters.size()) continue;
    TensorId const given = ends.parameters[parameter];
    TensorId const taken = ends.results[result];
    tensor(given).kept = false;
    if (taken == kNone || taken == given) continue;
    OpId const writer = writers[static_cast<std::size_t>(taken)];
    if (writer == kNone || tensor(taken).alias_of != kNone || tensor(taken).bytes > tensor(given).bytes) continue;
    tensor(taken).alias_of = given;
    tensor(taken).in_place_of = kNone;
    auto& kind = graph.ops[static_cast<std::size_t>(writer)].kind;
    if (kind == OpKind::compute) kind = OpKind::update;
  }
  for (auto const result : ends.results) {
    if (result != kNone) tensor(result).kept = true;
  }
}

void order_overwriting(OpGraph& graph) {
  std::vector<std::vector<OpId>> readers(graph.tensors.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    for (auto const tensor : graph.ops[i].reads)
      readers[static_cast<std::size_t>(tensor)].push_back(static_cast<OpId>(i));
  }
  std::vector<bool> taken(graph.tensors.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    auto& op = graph.ops[i];
    for (auto const written : op.writes) {
      auto& tensor = graph.tensors[static_cast<std::size_t>(written)];
      if (tensor.alias_of == kNone) continue;
      auto const over = static_cast<std::size_t>(tensor.alias_of);
      auto const& before = readers[over];
      bool const needed_later = graph.tensors[over].kept || (!before.empty() && before.back() > static_cast<OpId>(i));
      if (needed_later || taken[over]) {
        tensor.alias_of = kNone;
        op.memory_bytes += 2 * static_cast<double>(tensor.bytes);
        continue;
      }
      taken[over] = true;
      for (OpId const reader : before) {
        if (reader != static_cast<OpId>(i)) op.after.push_back(reader);
      }
    }
    std::sort(op.after.begin(), op.after.end());
    op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
  }
}

}  // namespace weft::hlo
