#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "weft_simulate/prediction.hpp"

namespace weft::simulate_tool {

/// Prints a line about `what`, the thing that runs, and one about the network.
void print_network(std::FILE* out, Settings const& settings, std::string_view what);
[[nodiscard]] nlohmann::ordered_json topology_json(Settings const& settings);

/// These print the parts of the report: the table of all sizes and algorithms, row by row; the error of the first rank
/// that fails, if one does; and where one algorithm overtakes another.
void print_heading(std::FILE* out, Settings const& settings);
void print_row(std::FILE* out, Row const& row);
void print_failure(std::FILE* out, Settings const& settings, std::vector<Row> const& rows);
void print_crossovers(std::FILE* out, Settings const& settings, std::vector<Row> const& rows);
[[nodiscard]] nlohmann::ordered_json report_json(Settings const& settings, std::vector<Row> const& rows);

}  // namespace weft::simulate_tool
