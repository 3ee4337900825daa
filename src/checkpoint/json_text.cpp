#include "checkpoint/json_text.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "weft/error.hpp"

namespace weft {

using Json = nlohmann::json;

namespace {

constexpr char const* kTakeAnother = "restore the file from a copy, or take another checkpoint";

// Without the library's "[json.exception.out_of_range.403] ".
std::string_view words_of(Json::exception const& found) {
  std::string_view const words = found.what();
  std::size_t const tag = words.find("] ");
  return words.starts_with('[') && tag != std::string_view::npos ? words.substr(tag + 2) : words;
}

}  // namespace

void refuse_contents(std::filesystem::path const& path, Json::exception const& found, std::string const& where) {
  refuse(path, fmt::format("{}cannot be understood ({}): another version or program wrote it; {}", where,
                           words_of(found), kTakeAnother));
}

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
  } catch (Json::parse_error const& broken) {
    refuse(path, fmt::format("its JSON breaks off or is damaged at byte {}; {}", broken.byte, kTakeAnother));
  }
}

}  // namespace weft
