#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace weft {

/// In a save's folder: the names of the files that the save writes there, one a line. It is written before them, so
/// that nothing that a save did not write is ever removed.
inline constexpr char const* kWrittenName = "files-of-this-save.txt";

/// The name of a folder for the next save, after all that are in `folder`: "save-000012".
[[nodiscard]] std::string next_save_name(std::filesystem::path const& folder);

/// Makes the folder of a save with the list of the `files` that it will have; both have reached the disk.
/// @throws Error{system}
void make_save(std::filesystem::path const& save, std::span<std::string const> files);

/// @throws Error{invalid_argument|system} naming the file where `folder` has an index that is not of a save: saving
/// would replace it.
void refuse_foreign_index(std::filesystem::path const& folder);

/// Removes the files of all saves but the one that the index names, if there is an index that can be read; of all,
/// where there is none. What a save did not write, or cannot be removed, stays. Never throws.
void remove_other_saves(std::filesystem::path const& folder) noexcept;

}  // namespace weft
