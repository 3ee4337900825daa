#include "checkpoint/json_text.hpp"

#include <fmt/format.h>

#include "core/strict_json.hpp"
#include "weft/error.hpp"

namespace weft {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kDeepest = 32;  // dump() recurses for each level; an index has 7, a header 3
constexpr char const* kTakeAnother = "restore the file from a copy, or take another checkpoint";

// Without the library's "[json.exception.out_of_range.403] ".
std::string_view words_of(Json::exception const& found) {
  std::string_view const words = found.what();
  std::size_t const tag = words.find("] ");
  return words.starts_with('[') && tag != std::string_view::npos ? words.substr(tag + 2) : words;
}

}  // namespace

void refuse_contents(std::filesystem::path const& path, Json::exception const& found, std::string const& where) {
  refuse(path, fmt::format("{}cannot be understood ({}): another version or program wrote it; {}", where,
                           words_of(found), kTakeAnother));
}

void refuse(std::filesystem::path const& path, std::string const& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("checkpoint {}: {}", path.string(), what));
}

Json parse_json(std::filesystem::path const& path, std::string_view text) {
  try {
    return parse_strict_json(text, kDeepest);
  } catch (RefusedJson const& refused) {
    if (refused.repeated()) refuse(path, fmt::format("has {} twice", *refused.repeated()));
    refuse(path, fmt::format("its JSON is more than {} deep; {}", kDeepest, kTakeAnother));
  } catch (Json::parse_error const& broken) {
    refuse(path, fmt::format("its JSON breaks off or is damaged at byte {}; {}", broken.byte, kTakeAnother));
  } catch (Json::out_of_range const& beyond) {  // a number out of range
    refuse_contents(path, beyond);
  }
}

}  // namespace weft
