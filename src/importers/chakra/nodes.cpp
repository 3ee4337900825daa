#include "importers/chakra/nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "importers/common/json_input.hpp"
#include "weft/error.hpp"

namespace weft::chakra {

namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 8;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

class NodeReader {
 public:
  NodeReader(std::string const& source, ImportReport& report) : source_(source), report_(report) {}

  std::vector<Node> read(Json const& list) {
    std::vector<Node> nodes;
    std::vector<std::int64_t> parents;
    for (auto const& json : list) {
      ++report_.entries;
      nodes.push_back(node(json));
    }
    std::stable_sort(nodes.begin(), nodes.end(), [](Node const& a, Node const& b) { return a.id < b.id; });
    link(nodes);
    return nodes;
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}: {}", source_, where_, why));
  }

  Node node(Json const& json) {
    where_ = fmt::format("node {}", report_.entries - 1);
    if (!json.is_object()) refuse("no JSON object");
    Node node{.id = whole_in(json, "id", -1), .name = text_in(json, "name"), .json = &json};
    if (node.id < 0) refuse("\"id\" is missing, or no number from 0");
    where_ = fmt::format("node {} ({})", node.id, node.name);
    if (whole_in(json, "ctrl_deps", -1) < 0) refuse("\"ctrl_deps\" is missing, or no number from 0");
    if (auto const schema = attribute(json, "op_schema"); schema.is_string()) node.schema = schema.get<std::string>();
    auto const backend = attribute(json, "kernel_backend");
    node.is_kernel = backend.is_string() && !backend.get_ref<std::string const&>().empty();
    node.inputs = tensors(json, "inputs");
    node.outputs = tensors(json, "outputs");
    node.writes_argument = written_arguments(node.schema);
    node.collective = collective_named(node.name);
    return node;
  }

  void link(std::vector<Node>& nodes) {
    std::unordered_map<std::int64_t, std::size_t> place;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      where_ = fmt::format("node {} ({})", nodes[i].id, nodes[i].name);
      if (!place.emplace(nodes[i].id, i).second) refuse("another node has its id");
      auto const parent = whole_in(*nodes[i].json, "ctrl_deps", -1);
      if (parent == nodes[i].id) continue;  // the node of the process, which holds itself
      if (parent > nodes[i].id) refuse(fmt::format("it lies within node {}, which comes later", parent));
      auto const found = place.find(parent);
      if (found != place.end()) {
        nodes[i].parent = found->second;
      } else {
        report_.warn("node within one that is not there, taken for one of its own");
      }
    }
  }

  std::vector<TensorUse> tensors(Json const& json, char const* key) const {
    std::vector<TensorUse> uses;
    if (!json.contains(key) || !json[key].is_object()) return uses;
    static Json const none = Json::array();
    auto const part = [&](char const* name) -> Json const& {
      return json[key].contains(name) && json[key][name].is_array() ? json[key][name] : none;
    };
    auto const& values = part("values");
    for (std::size_t argument = 0; argument < values.size(); ++argument) {
      collect(values[argument], at(part("shapes"), argument), at(part("strides"), argument), argument, 0, uses);
    }
    return uses;
  }

  static Json const& at(Json const& list, std::size_t index) {
    static Json const none;
    return list.is_array() && index < list.size() ? list[index] : none;
  }

  /// [tensor, storage, offset, elements, bytes of one, device].
  static bool is_tensor(Json const& value) {
    constexpr std::size_t kNumbers = 5;
    if (!value.is_array() || value.size() != kNumbers + 1 || !value[kNumbers].is_string()) return false;
    return std::all_of(value.begin(), value.begin() + kNumbers, [](Json const& n) { return n.is_number_integer(); });
  }

  void collect(Json const& value, Json const& shape, Json const& strides, std::size_t argument, int depth,
               std::vector<TensorUse>& uses) const {
    if (is_tensor(value)) {
      uses.push_back(tensor(value, shape, strides, argument));
    } else if (value.is_array() && depth < kDeepest) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        collect(value[i], at(shape, i), at(strides, i), argument, depth + 1, uses);
      }
    }
  }

  TensorUse tensor(Json const& value, Json const& shape, Json const& strides, std::size_t argument) const {
    auto const number = [&](std::size_t i) { return value[i].get<std::int64_t>(); };
    auto const offset = number(2);
    auto const elements = number(3);
    auto const width = number(4);
    double last = static_cast<double>(elements);
    TensorUse use{.storage = number(1), .argument = argument};
    for (std::size_t i = 0; shape.is_array() && i < shape.size(); ++i) {
      if (shape[i].is_number_integer()) use.shape.push_back(shape[i].get<std::int64_t>());
    }
    if (elements > 0 && strides.is_array() && strides.size() == use.shape.size() && !use.shape.empty()) {
      last = 1;
      for (std::size_t i = 0; i < use.shape.size(); ++i) {
        auto const stride = strides[i].is_number() ? strides[i].get<double>() : 0;
        last += (static_cast<double>(use.shape[i]) - 1) * stride;
      }
    }
    double const extent = (static_cast<double>(offset) + last) * static_cast<double>(width);
    double const bytes = static_cast<double>(elements) * static_cast<double>(width);
    auto const fits = [](double each) { return each >= 0 && each <= static_cast<double>(kMostBytes); };
    if (offset < 0 || elements < 0 || width < 0 || !fits(extent) || !fits(bytes)) {
      refuse(fmt::format("a tensor of {} elements of {} bytes at {}", elements, width, offset));
    }
    use.extent = static_cast<std::int64_t>(extent);
    use.bytes = static_cast<std::int64_t>(bytes);
    return use;
  }

  std::string const& source_;
  ImportReport& report_;
  std::string where_;
};

}  // namespace

std::vector<Node> read_nodes(Json const& list, std::string const& source, ImportReport& report) {
  return NodeReader(source, report).read(list);
}

Json attribute(Json const& node, char const* name) {
  if (!node.contains("attrs") || !node["attrs"].is_array()) return nullptr;
  for (auto const& entry : node["attrs"]) {
    if (text_in(entry, "name") == name && entry.contains("value")) return entry["value"];
  }
  return nullptr;
}

std::vector<bool> written_arguments(std::string const& schema) {
  std::vector<bool> written;
  auto const begin = schema.find('(');
  if (begin == std::string::npos) return written;
  int depth = 1;
  std::string argument;
  auto const close = [&] {
    auto const first = argument.find_first_not_of(' ');
    // Arguments that follow "*" are given by name; "*" is no argument itself.
    if (first != std::string::npos && argument.substr(first) != "*") {
      written.push_back(argument.find('!') != std::string::npos);
    }
    argument.clear();
  };
  for (auto at = begin + 1; at < schema.size() && depth > 0; ++at) {
    char const c = schema[at];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (depth == 0 || (depth == 1 && c == ',')) {
      close();
    } else {
      argument += c;
    }
  }
  return written;
}

}  // namespace weft::chakra
