#include "weft_schedule/picture.hpp"

#include "plot_script/plot_script.hpp"

namespace weft::schedule_tool {

void draw(nlohmann::ordered_json const& plan, nlohmann::ordered_json const& report, std::string const& path) {
  plot_tool::run_plot_script("plot_schedule.py", "- - " + plot_tool::quoted(path),
                             nlohmann::ordered_json{{"plan", plan}, {"report", report}}.dump());
}

}  // namespace weft::schedule_tool
