#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

/// @throws Error{invalid_argument} naming `source`, line and column where it is no JSON object with a list under `key`.
[[nodiscard]] nlohmann::json read_json_list(std::istream& in, std::string const& source, char const* key);

/// Of a member that is text; "" where there is none.
[[nodiscard]] std::string text_in(nlohmann::json const& json, char const* key);

/// Of a member that is a whole number, or text that says one; `otherwise` where there is none.
[[nodiscard]] std::int64_t whole_in(nlohmann::json const& json, char const* key, std::int64_t otherwise);

}  // namespace weft
