#pragma once

#include <CLI/CLI.hpp>

#include "graph_input/graph_source.hpp"

namespace weft::graph_tool {

/// The file as a positional argument, and a Transformer's numbers as options. `source` outlives the parsing.
void add_options(CLI::App& app, GraphSource& source);

/// After parsing. @throws CLI::ValidationError where there is neither a file nor a model, or both, and for what would
/// have no effect.
void check_options(CLI::App& app, GraphSource const& source);

}  // namespace weft::graph_tool
