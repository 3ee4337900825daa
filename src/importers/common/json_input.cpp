#include "importers/common/json_input.hpp"

#include <fmt/format.h>

#include <charconv>
#include <istream>

#include "scheduler/graph/shallow_text.hpp"
#include "weft/error.hpp"

namespace weft {

using Json = nlohmann::json;

Json read_json_list(std::istream& in, std::string const& source, char const* key) {
  Json json;
  try {
    json = Json::parse(shallow_text(in, source));
  } catch (Json::exception const& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: not JSON: {}", source, error.what()));
  }
  if (!json.is_object() || !json.contains(key) || !json[key].is_array()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: no JSON object with a list of \"{}\"", source, key));
  }
  return json;
}

std::string text_in(Json const& json, char const* key) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return "";
  return json[key].get<std::string>();
}

std::int64_t whole_in(Json const& json, char const* key, std::int64_t otherwise) {
  if (!json.is_object() || !json.contains(key)) return otherwise;
  auto const& value = json[key];
  if (value.is_number_unsigned()) {
    auto const number = value.get<std::uint64_t>();
    return number > static_cast<std::uint64_t>(INT64_MAX) ? otherwise : static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_string()) return otherwise;
  auto const& text = value.get_ref<std::string const&>();
  std::int64_t number = otherwise;
  auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

}  // namespace weft
