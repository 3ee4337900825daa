#pragma once

#include <CLI/CLI.hpp>

#include "graph_input/graph_source.hpp"

namespace weft::graph_tool {

/// Adds the file as a positional argument, and a Transformer's numbers as options. `source` must outlive the parsing.
void add_options(CLI::App& app, GraphSource& source);

/// Call it after parsing. @throws CLI::ValidationError if there is neither a file nor a model, or if there are both,
/// and for options that would have no effect.
void check_options(CLI::App& app, GraphSource const& source);

}  // namespace weft::graph_tool
