#include "checkpoint/save_folder.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/file.hpp"
#include "checkpoint/index.hpp"
#include "core/log.hpp"

namespace weft {
namespace {

constexpr std::string_view kPrefix = "save-";
constexpr std::uint64_t kLongestIndex = std::uint64_t{1} << 32;

std::optional<std::uint64_t> number_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
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

}  // namespace

std::string next_save_name(std::filesystem::path const& folder) {
  std::uint64_t highest = 0;
  for (auto const& save : saves_in(folder)) highest = std::max(highest, *number_of(save.filename().string()));
  return fmt::format("{}{:06}", kPrefix, highest + 1);
}

void remove_other_saves(std::filesystem::path const& folder) noexcept {
  try {
    if (!std::filesystem::exists(folder)) return;
    std::set<std::string> named;
    std::filesystem::path const index = folder / kIndexName;
    if (std::filesystem::exists(std::filesystem::symlink_status(index))) {
      for (std::string const& file : parse_index(index, read_whole(index, kLongestIndex)).files) {
        named.insert(std::filesystem::path(file).begin()->string());
      }
    }
    for (auto const& save : saves_in(folder)) {
      if (!named.contains(save.filename().string())) std::filesystem::remove_all(save);
    }
  } catch (std::exception const& error) {
    log(LogLevel::warn, fmt::format("checkpoint {}: files of earlier saves stay: {}", folder.string(), error.what()));
  }
}

}  // namespace weft
