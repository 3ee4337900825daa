#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace weft {

/// The file in a save's folder that lists the files which the save writes there, one name a line. It is written before
/// them, so that nothing is ever removed that a save did not write.
inline constexpr char const* kWrittenName = "files-of-this-save.txt";

/// The name of the next save's folder, after all that are in `folder`: "save-000012".
[[nodiscard]] std::string next_save_name(std::filesystem::path const& folder);

/// Makes the folder of a save, with the list of the `files` that it will have. Returns once both are on the disk.
/// @throws Error{system}
void make_save(std::filesystem::path const& save, std::span<std::string const> files);

/// Refuses a folder whose index is not a save's, because saving would replace it.
/// @throws Error{invalid_argument|system} naming the file
void refuse_foreign_index(std::filesystem::path const& folder);

/// Removes the files of all saves but the one that the index names; where there is no index, of all saves. Where the
/// index cannot be read nothing is removed. What a save did not write, or what cannot be removed, stays. Never throws.
void remove_other_saves(std::filesystem::path const& folder) noexcept;

}  // namespace weft
