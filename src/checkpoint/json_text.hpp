#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace weft {

/// Refuses what nlohmann-json would let pass: a name twice in one object.
/// @throws Error{invalid_argument} naming the file and the reason.
[[nodiscard]] nlohmann::json parse_json(std::filesystem::path const& path, std::string_view text);

/// Refuses JSON that has not what is expected, in other words than the library's.
[[noreturn]] void refuse_contents(std::filesystem::path const& path, nlohmann::json::exception const& found,
                                  std::string const& where = "");

/// Error{invalid_argument} "checkpoint PATH: WHAT".
[[noreturn]] void refuse(std::filesystem::path const& path, std::string const& what);

}  // namespace weft
