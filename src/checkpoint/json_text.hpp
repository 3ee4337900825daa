#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace weft {

/// Refuses what nlohmann-json would let pass: a name twice in one object.
/// @throws Error{invalid_argument} naming the file and the reason.
[[nodiscard]] nlohmann::json parse_json(std::filesystem::path const& path, std::string_view text);

/// Error{invalid_argument} "checkpoint PATH: WHAT".
[[noreturn]] void refuse(std::filesystem::path const& path, std::string const& what);

}  // namespace weft
