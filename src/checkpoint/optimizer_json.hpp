#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

#include "weft/optimizer_options.hpp"

namespace weft {

/// As {"name": "AdamW", "lr": 0.001, …}.
[[nodiscard]] nlohmann::json optimizer_to_json(OptimizerOptions const& options);
/// The inverse. @throws Error{invalid_argument} naming the file for an unknown name; nlohmann::json::exception for a
/// missing or mistyped option.
[[nodiscard]] OptimizerOptions optimizer_from_json(std::filesystem::path const& path, nlohmann::json const& json);

}  // namespace weft
