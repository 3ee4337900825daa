#pragma once

#include <string>
#include <string_view>

namespace weft::plot_tool {

/// Runs a Python script of tools/, or of share/weft in an installation, with `arguments`, and with `input` on its
/// standard input. @throws std::runtime_error beginning with "--plot: " if the script is missing or fails.
void run_plot_script(char const* script, std::string const& arguments, std::string_view input);

/// Called before long work whose result run_plot_script() is to draw. @throws std::runtime_error likewise if the script
/// or a python3 with matplotlib is missing.
void check_plot_script(char const* script);

/// `text` quoted as one word of a shell command.
[[nodiscard]] std::string quoted(std::string const& text);

}  // namespace weft::plot_tool
