#pragma once

#include <string>
#include <string_view>

namespace weft::plot_tool {

/// Runs a Python script of tools/, or share/weft where this is installed, with `arguments` and `input` on its standard
/// input. @throws std::runtime_error that begins with "--plot: " where it is not there or does not end well
void run_plot_script(char const* script, std::string const& arguments, std::string_view input);

/// As one word of a shell's command.
[[nodiscard]] std::string quoted(std::string const& text);

}  // namespace weft::plot_tool
