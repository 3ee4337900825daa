#include "checkpoint/json_text.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "weft/error.hpp"

namespace weft {

using Json = nlohmann::json;

void refuse(std::filesystem::path const& path, std::string const& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("checkpoint {}: {}", path.string(), what));
}

Json parse_json(std::filesystem::path const& path, std::string_view text) {
  std::vector<std::set<std::string>> open;  // the names so far of every object that is not closed
  auto const watch = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second) {
      refuse(path, fmt::format("has {} twice", parsed.get<std::string>()));
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (Json::exception const& broken) {
    refuse(path, fmt::format("its JSON cannot be read: {}", broken.what()));
  }
}

}  // namespace weft
