#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace weft {

/// Parses JSON. Also refuses what nlohmann-json would let pass: a name that occurs twice in one object, and nesting
/// that would later exhaust the stack. @throws Error{invalid_argument} naming the file and the reason.
[[nodiscard]] nlohmann::json parse_json(std::filesystem::path const& path, std::string_view text);

/// Throws Error{invalid_argument} for JSON that lacks what is expected, as the library has `found`, but in clearer
/// words.
[[noreturn]] void refuse_contents(std::filesystem::path const& path, nlohmann::json::exception const& found,
                                  std::string const& where = "");

/// Throws Error{invalid_argument} "checkpoint PATH: WHAT".
[[noreturn]] void refuse(std::filesystem::path const& path, std::string const& what);

}  // namespace weft
