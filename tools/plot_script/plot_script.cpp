#include "plot_script/plot_script.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace weft::plot_tool {
namespace {

/// The system's python3 has the system's matplotlib, where another one comes first and has none.
constexpr char const* kPython = "python=python3; $python -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3";

std::string find_script(char const* script) {
  std::error_code none;
  auto const folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (auto const& place : {folder / "../share/weft" / script, folder / "../../../tools" / script}) {
    if (std::filesystem::exists(place, none)) return std::filesystem::weakly_canonical(place, none).string();
  }
  throw std::runtime_error(fmt::format("--plot: there is no {} in share/weft beside {}", script, folder.string()));
}

}  // namespace

std::string quoted(std::string const& text) {
  std::string word = "'";
  for (char const each : text) word += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return word + "'";
}

void check_plot_script(char const* script) {
  (void)find_script(script);
  auto const command = fmt::format("{}; $python -c 'import matplotlib' 2>/dev/null", kPython);
  if (std::system(command.c_str()) != 0) {
    throw std::runtime_error(
        "--plot: no python3 with matplotlib is here (Debian and Ubuntu: apt-get install "
        "python3-matplotlib)");
  }
}

void run_plot_script(char const* script, std::string const& arguments, std::string_view input) {
  std::string const command = fmt::format("{}; exec $python {} {}", kPython, quoted(find_script(script)), arguments);
  // A script that ends early is told by its exit code.
  auto* const before = std::signal(SIGPIPE, SIG_IGN);
  std::FILE* const pipe = popen(command.c_str(), "w");
  if (pipe == nullptr) throw std::runtime_error("--plot: python3 could not be started");
  std::fwrite(input.data(), 1, input.size(), pipe);
  int const status = pclose(pipe);
  std::signal(SIGPIPE, before);
  if (status != 0) throw std::runtime_error(fmt::format("--plot: {} failed", script));
}

}  // namespace weft::plot_tool
