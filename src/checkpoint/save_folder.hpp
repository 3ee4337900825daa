#pragma once

#include <filesystem>
#include <string>

namespace weft {

/// The name of a folder for the next save, after all that are in `folder`: "save-000012".
[[nodiscard]] std::string next_save_name(std::filesystem::path const& folder);

/// Removes the folders of all saves but the one that the index names, if there is an index that can be read; of all,
/// where there is none. What cannot be removed stays. Never throws.
void remove_other_saves(std::filesystem::path const& folder) noexcept;

}  // namespace weft
