#include "checkpoint/save_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/file.hpp"
#include "checkpoint/index.hpp"
#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::string_view kSaveName = "save-";
constexpr std::uint64_t kLongestList = std::uint64_t{1} << 26;

std::optional<std::uint64_t> number_of(std::string_view name) {
  if (!name.starts_with(kSaveName)) return std::nullopt;
  name.remove_prefix(kSaveName.size());
  std::uint64_t number = 0;
  auto const [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

std::vector<std::filesystem::path> saves_in(std::filesystem::path const& folder) {
  std::vector<std::filesystem::path> saves;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (number_of(it->path().filename().string())) saves.push_back(it->path());
  }
  if (error) throw_system(folder, "read", error.value());
  return saves;
}

bool is_there(std::filesystem::path const& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

// Where the list's last line is cut short, the save had not written anything else yet: whole lines are enough.
std::vector<std::string> files_listed(std::string_view list) {
  std::vector<std::string> files;
  for (std::size_t end = 0; (end = list.find('\n')) != std::string_view::npos; list.remove_prefix(end + 1)) {
    std::filesystem::path const name(list.substr(0, end));
    if (name.has_filename() && name == name.filename() && name != "." && name != "..") files.push_back(name.string());
  }
  return files;
}

void remove_file(std::filesystem::path const& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_system(path, "remove", errno);
}

// Removes the list last, so that what is left if this ends early is still known to be a save's.
void remove_save(std::filesystem::path const& save) {
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(save))) return;
  std::filesystem::path const list = save / kWrittenName;
  if (is_there(list)) {
    for (std::string const& file : files_listed(read_whole(list, kLongestList))) remove_file(save / file);
    remove_file(list);
  }
  if (::rmdir(save.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST) throw_system(save, "remove", errno);
}

}  // namespace

std::string next_save_name(std::filesystem::path const& folder) {
  std::uint64_t highest = 0;
  for (auto const& save : saves_in(folder)) highest = std::max(highest, *number_of(save.filename().string()));
  return fmt::format("{}{:06}", kSaveName, highest + 1);
}

void make_save(std::filesystem::path const& save, std::span<std::string const> files) {
  std::error_code error;
  std::filesystem::create_directory(save, error);
  if (error) throw_system(save, "create", error.value());
  std::string list;
  for (std::string const& file : files) list += file + '\n';
  File written = File::create(save / kWrittenName);
  written.write(std::as_bytes(std::span(list)));
  written.sync();
  File::open_folder(save).sync();
  File::open_folder(save.parent_path()).sync();
}

void refuse_foreign_index(std::filesystem::path const& folder) {
  std::filesystem::path const index = folder / kIndexName;
  if (!is_there(index)) return;
  try {
    (void)parse_index(index, read_whole(index, kLongestIndex));
  } catch (Error const& error) {
    throw Error(error.code(), fmt::format("{}; a save here would replace it: give the saver another folder, or move "
                                          "this checkpoint away",
                                          error.what()));
  }
}

void remove_other_saves(std::filesystem::path const& folder) noexcept {
  try {
    if (!std::filesystem::exists(folder)) return;
    std::set<std::string> named;
    std::filesystem::path const index = folder / kIndexName;
    if (is_there(index)) {
      for (std::string const& file : parse_index(index, read_whole(index, kLongestIndex)).files) {
        named.insert(std::filesystem::path(file).begin()->string());
      }
    }
    for (auto const& save : saves_in(folder)) {
      if (!named.contains(save.filename().string())) remove_save(save);
    }
  } catch (std::exception const& error) {
    log(LogLevel::warn, fmt::format("checkpoint {}: files of earlier saves stay: {}", folder.string(), error.what()));
  }
}

}  // namespace weft
