#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

/// Reads a JSON object that has a list under `key`.
/// @throws Error{invalid_argument} naming `source`, line and column where it is no such object.
[[nodiscard]] nlohmann::json read_json_list(std::istream& in, std::string const& source, char const* key);

/// The text of a member; "" where it is none.
[[nodiscard]] std::string text_in(nlohmann::json const& json, char const* key);

/// The value of a member that is a whole number, or text that says one; `otherwise` where there is none.
[[nodiscard]] std::int64_t whole_in(nlohmann::json const& json, char const* key, std::int64_t otherwise);

}  // namespace weft
