#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weft::schedule_tool {

/// Has plot_schedule.py draw a plan and its report (plan_json(), report_json()) as the PNG `path`. The script is looked
/// for where it is installed (share/weft beside bin) and in the source tree that the program was built in.
/// @throws std::runtime_error where there is no script, or where it could not draw (it has said why on standard error).
void draw(nlohmann::ordered_json const& plan, nlohmann::ordered_json const& report, std::string const& path);

/// Before a plan is made that draw() is to draw. @throws std::runtime_error where it cannot
void check_drawing();

}  // namespace weft::schedule_tool
