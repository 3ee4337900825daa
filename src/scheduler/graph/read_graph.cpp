#include <fmt/format.h>

#include <initializer_list>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "core/strict_json.hpp"
#include "scheduler/graph/shallow_text.hpp"
#include "scheduler/graph/strided_group.hpp"
#include "weft/error.hpp"
#include "weft/op_graph_json.hpp"

namespace weft {

namespace {

using Json = nlohmann::json;
using Ids = std::unordered_map<std::string, std::int32_t>;

class GraphReader {
 public:
  explicit GraphReader(std::string const& source) : source_(source) {}

  OpGraph read(std::istream& in) {
    Json const json = parse(in);
    where_ = "the graph";
    allow(json, {"weft_graph", "name", "groups", "tensors", "ops"});
    if (number<int>(json, "weft_graph") != 1) refuse("\"weft_graph\" is the form's version and has to be 1");
    OpGraph graph;
    graph.name = json.contains("name") ? text(json, "name") : source_;
    groups_ = ids_of(json, "groups");
    tensors_ = ids_of(json, "tensors");
    ops_ = ids_of(json, "ops");
    for (Json const& entry : list(json, "groups")) graph.add(group(entry));
    for (Json const& entry : list(json, "tensors")) graph.add(tensor(entry));
    for (Json const& entry : list(json, "ops")) graph.add(op(entry));
    named([&] { check_graph(graph); });
    return graph;
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}: {}", source_, where_, why));
  }

  /// Calls a function that does not know the source, and names the source in its errors.
  template <typename Call>
  std::invoke_result_t<Call const&> named(Call const& call) const {
    try {
      return call();
    } catch (Error const& error) {
      throw Error(error.code(), fmt::format("{}: {}", source_, error.what()));
    }
  }

  Json parse(std::istream& in) const {
    try {
      return parse_strict_json(shallow_text(in, source_), kDeepestJson);
    } catch (RefusedJson const& refused) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: an object has the key \"{}\" twice", source_, refused.repeated().value()));
    } catch (Json::exception const& error) {
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: not a graph in JSON: {}", source_, error.what()));
    }
  }

  void allow(Json const& json, std::initializer_list<char const*> keys) const {
    if (!json.is_object()) refuse("not a JSON object");
    for (auto const& [key, value] : json.items()) {
      bool known = false;
      for (char const* const each : keys) known |= key == each;
      if (!known) refuse(fmt::format("unknown key \"{}\"", key));
    }
  }

  Json const& at(Json const& json, char const* key) const {
    if (!json.contains(key)) refuse(fmt::format("\"{}\" is missing", key));
    return json[key];
  }

  Json const& list(Json const& json, char const* key) const {
    static Json const empty = Json::array();
    if (!json.contains(key)) return empty;
    if (!json[key].is_array()) refuse(fmt::format("\"{}\" is not a list", key));
    return json[key];
  }

  std::string text(Json const& json, char const* key) const {
    Json const& value = at(json, key);
    if (!value.is_string()) refuse(fmt::format("\"{}\" is not a string", key));
    return value.get<std::string>();
  }

  template <typename T>
  T number(Json const& json, char const* key) const {
    Json const& value = at(json, key);
    if constexpr (std::is_floating_point_v<T>) {
      if (!value.is_number()) refuse(fmt::format("\"{}\" is not a number", key));
    } else {
      if (!value.is_number_integer()) refuse(fmt::format("\"{}\" is not a whole number", key));
      // get<T>() would cut off a number that does not fit.
      bool const fits = value.is_number_unsigned()
                            ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                            : value.get<std::int64_t>() >= std::numeric_limits<T>::min();
      if (!fits) refuse(fmt::format("\"{}\" does not fit: {}", key, value.dump()));
    }
    return value.get<T>();
  }

  template <typename T>
  T number_or(Json const& json, char const* key, T otherwise) const {
    return json.contains(key) ? number<T>(json, key) : otherwise;
  }

  Ids ids_of(Json const& json, char const* key) {
    Ids ids;
    for (Json const& entry : list(json, key)) {
      where_ = fmt::format("entry {} of \"{}\"", ids.size(), key);
      if (!entry.is_object()) refuse("not a JSON object");
      auto const id = static_cast<std::int32_t>(ids.size());
      auto const name = text(entry, "name");
      if (!ids.emplace(name, id).second) refuse(fmt::format("another one is named \"{}\" too", name));
    }
    return ids;
  }

  std::int32_t id_in(Ids const& ids, Json const& name, char const* key) const {
    if (!name.is_string()) refuse(fmt::format("\"{}\" does not hold names", key));
    auto const found = ids.find(name.get_ref<std::string const&>());
    if (found == ids.end()) refuse(fmt::format("\"{}\": nothing is named {}", key, name.dump()));
    return found->second;
  }

  std::int32_t id_or_none(Ids const& ids, Json const& json, char const* key) const {
    return json.contains(key) ? id_in(ids, json[key], key) : kNone;
  }

  std::vector<std::int32_t> ids_in(Ids const& ids, Json const& json, char const* key) const {
    std::vector<std::int32_t> found;
    for (Json const& name : list(json, key)) found.push_back(id_in(ids, name, key));
    return found;
  }

  template <typename Kind>
  Kind kind_in(Json const& json, Kind last) const {
    auto const name = text(json, "kind");
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      if (to_string(static_cast<Kind>(i)) == name) return static_cast<Kind>(i);
    }
    refuse(fmt::format("unknown kind \"{}\"", name));
  }

  OpGroup group(Json const& json) {
    auto const name = text(json, "name");
    where_ = fmt::format("group {}", name);
    allow(json, {"name", "sets", "strided"});
    if (json.contains("sets") == json.contains("strided")) refuse("it has either \"sets\" or \"strided\"");
    if (json.contains("strided")) {
      Json const& strided = json["strided"];
      allow(strided, {"ranks", "size", "stride"});
      StridedSets const sets{.ranks = number<int>(strided, "ranks"),
                             .size = number<int>(strided, "size"),
                             .stride = number_or<int>(strided, "stride", 1)};
      return named([&] { return strided_group(name, sets); });
    }
    OpGroup group{.name = name};
    for (Json const& set : list(json, "sets")) {
      if (!set.is_array()) refuse("\"sets\" is not a list of lists of ranks");
      auto& ranks = group.sets.emplace_back();
      for (Json const& rank : set) ranks.push_back(number<int>(Json{{"rank", rank}}, "rank"));
    }
    return group;
  }

  OpTensor tensor(Json const& json) {
    where_ = fmt::format("tensor {}", text(json, "name"));
    allow(json, {"name", "bytes", "kept", "alias_of", "in_place_of"});
    OpTensor tensor{.name = text(json, "name"), .bytes = number<std::int64_t>(json, "bytes")};
    if (json.contains("kept")) tensor.kept = flag(json, "kept");
    tensor.alias_of = id_or_none(tensors_, json, "alias_of");
    tensor.in_place_of = id_or_none(tensors_, json, "in_place_of");
    return tensor;
  }

  [[nodiscard]] bool flag(Json const& json, char const* key) const {
    if (!json[key].is_boolean()) refuse(fmt::format("\"{}\" is neither true nor false", key));
    return json[key].get<bool>();
  }

  OpNode op(Json const& json) {
    where_ = fmt::format("operator {}", text(json, "name"));
    allow(json, {"name", "kind", "flops", "memory_bytes", "seconds", "collective", "layer", "repeatable", "reads",
                 "writes", "after"});
    OpNode op;
    op.name = text(json, "name");
    op.kind = kind_in(json, OpKind::update);
    op.flops = number_or<double>(json, "flops", 0);
    op.memory_bytes = number_or<double>(json, "memory_bytes", 0);
    if (json.contains("seconds")) op.seconds = number<double>(json, "seconds");
    if (json.contains("collective") != (op.kind == OpKind::collective)) {
      refuse("\"collective\" belongs to operators of that kind, and to all of them");
    }
    if (op.kind == OpKind::collective) {
      Json const& collective = json["collective"];
      allow(collective, {"kind", "bytes", "group"});
      op.collective = {.kind = kind_in(collective, CollectiveKind::permute),
                       .bytes = number<std::int64_t>(collective, "bytes"),
                       .group = id_in(groups_, at(collective, "group"), "group")};
    }
    op.layer = number_or<int>(json, "layer", kNone);
    if (json.contains("layer") && op.layer < 0) refuse(fmt::format("\"layer\" is {}; from 0 on", op.layer));
    if (json.contains("repeatable")) op.repeatable = flag(json, "repeatable");
    op.reads = ids_in(tensors_, json, "reads");
    op.writes = ids_in(tensors_, json, "writes");
    op.after = ids_in(ops_, json, "after");
    return op;
  }

  std::string const& source_;
  std::string where_;
  Ids groups_;
  Ids tensors_;
  Ids ops_;
};

}  // namespace

OpGraph read_graph(std::istream& in, std::string const& source) {
  return GraphReader(source).read(in);
}

}  // namespace weft
