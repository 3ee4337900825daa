#include "weft_schedule/picture.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

namespace weft::schedule_tool {

namespace {

constexpr char const* kScript = "plot_schedule.py";

std::string find_script() {
  std::error_code none;
  auto const folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (auto const& place : {folder / "../share/weft" / kScript, folder / "../../../tools" / kScript}) {
    if (std::filesystem::exists(place, none)) return std::filesystem::weakly_canonical(place, none).string();
  }
  throw std::runtime_error(fmt::format("--plot: there is no {} in share/weft beside {}", kScript, folder.string()));
}

/// As one word of a shell's command.
std::string quoted(std::string const& text) {
  std::string word = "'";
  for (char const each : text) word += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return word + "'";
}

}  // namespace

void draw(nlohmann::ordered_json const& plan, nlohmann::ordered_json const& report, std::string const& path) {
  // The system's python3 has the system's matplotlib, where another one comes first and has none.
  std::string const command = fmt::format(
      "python=python3; $python -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3; exec $python {} - - {}",
      quoted(find_script()), quoted(path));
  // A script that ends early is told by its exit code.
  auto* const before = std::signal(SIGPIPE, SIG_IGN);
  std::FILE* const script = popen(command.c_str(), "w");
  if (script == nullptr) throw std::runtime_error("--plot: python3 could not be started");
  std::string const both = nlohmann::ordered_json{{"plan", plan}, {"report", report}}.dump();
  std::fwrite(both.data(), 1, both.size(), script);
  int const status = pclose(script);
  std::signal(SIGPIPE, before);
  if (status != 0) throw std::runtime_error(fmt::format("--plot: {} could not be drawn", path));
}

}  // namespace weft::schedule_tool
