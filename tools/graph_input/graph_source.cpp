#include "graph_input/graph_source.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string_view>

#include "weft/error.hpp"
#include "weft/import_chakra.hpp"
#include "weft/import_hlo.hpp"
#include "weft/import_kineto.hpp"
#include "weft/op_graph_json.hpp"

namespace weft::graph_tool {

namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 16;

std::ifstream open(std::string const& path) {
  if (std::filesystem::is_directory(path)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: is a directory", path));
  }
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::invalid_argument, fmt::format("{}: cannot be opened for reading", path));
  return file;
}

bool ends_with(std::string const& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

enum class Form { graph, hlo, profile, execution };

/// By its suffix, or by what stands in its first lines: of torch's profiles "traceEvents", below some about the machine
/// and the groups of ranks, which may be long, or before these "schemaVersion"; of execution traces a schema that says
/// whose it is.
Form form_of(std::string const& path, std::istream& file) {
  if (ends_with(path, ".hlo") || ends_with(path, ".txt")) return Form::hlo;
  std::string begin(kLookedAt, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  file.clear();
  file.seekg(0);
  if (begin.find("\"weft_graph\"") != std::string::npos) return Form::graph;
  for (char const* const key : {"\"traceEvents\"", "\"schemaVersion\""}) {
    if (begin.find(key) != std::string::npos) return Form::profile;
  }
  if (begin.find("-chakra.") != std::string::npos) return Form::execution;
  return Form::graph;
}

/// What an importer made, and what it has to say.
template <typename Imported>
OpGraph told(Imported imported) {
  fmt::print(stderr, "{}", to_string(imported.report));
  return std::move(imported.graph);
}

OpGraph read_as(Form form, std::istream& file, std::string const& path) {
  switch (form) {
    case Form::hlo: return told(import_hlo(file, path));
    case Form::profile: return told(import_kineto(file, path));
    case Form::execution: return told(import_chakra(file, path));
    case Form::graph: break;
  }
  return read_graph(file, path);
}

/// Of what has no operators there is nothing to plan: it was another file that was meant.
OpGraph read_file(std::string const& path) {
  std::ifstream file = open(path);
  OpGraph graph = read_as(form_of(path, file), file, path);
  if (graph.ops.empty()) throw Error(ErrorCode::invalid_argument, fmt::format("{}: no operator is in it", path));
  return graph;
}

/// Plans name operators and tensors.
OpGraph with_names(OpGraph graph) {
  name_uniquely(graph);
  return graph;
}

}  // namespace

OpGraph read(GraphSource const& source, TransformerPlan const& plan) {
  if (source.model.empty()) return with_names(read_file(source.graph));
  TransformerShape shape = transformer_preset(source.model);
  for (auto const& change : source.shape_changes) change(shape);
  return with_names(transformer_graph(shape, plan));
}

}  // namespace weft::graph_tool
