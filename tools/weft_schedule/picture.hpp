#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weft::schedule_tool {

/// Has plot_schedule.py draw a plan and its report (plan_json(), report_json()) into the PNG file `path`. Looks for the
/// script where it is installed (share/weft next to bin) and in the source tree that the program was built from.
/// @throws std::runtime_error if there is no script, or if it could not draw (it has said why on standard error).
void draw(nlohmann::ordered_json const& plan, nlohmann::ordered_json const& report, std::string const& path);

/// Called before making a plan that draw() is to draw. @throws std::runtime_error if draw() would not work.
void check_drawing();

}  // namespace weft::schedule_tool
