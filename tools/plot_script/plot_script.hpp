#pragma once

#include <string>
#include <string_view>

namespace weft::plot_tool {

/// Runs a Python script of tools/, or share/weft where this is installed, with `arguments` and `input` on its standard
/// input. @throws std::runtime_error that begins with "--plot: " where it is not there or does not end well
void run_plot_script(char const* script, std::string const& arguments, std::string_view input);

/// Before long work whose result run_plot_script() draws. @throws std::runtime_error likewise where the script is not
/// there, or no python3 with matplotlib
void check_plot_script(char const* script);

/// As one word of a shell's command.
[[nodiscard]] std::string quoted(std::string const& text);

}  // namespace weft::plot_tool
