#include "weft_schedule/picture.hpp"

#include "plot_script/plot_script.hpp"

namespace weft::schedule_tool {
namespace {

constexpr char const* kScript = "plot_schedule.py";

}  // namespace

void check_drawing() {
  plot_tool::check_plot_script(kScript);
}

void draw(nlohmann::ordered_json const& plan, nlohmann::ordered_json const& report, std::string const& path) {
  plot_tool::run_plot_script(kScript, "- - " + plot_tool::quoted(path),
                             nlohmann::ordered_json{{"plan", plan}, {"report", report}}.dump());
}

}  // namespace weft::schedule_tool
