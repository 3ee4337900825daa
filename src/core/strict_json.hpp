#pragma once

#include <cstddef>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// A text that is valid JSON but refused all the same.
class RefusedJson : public std::exception {
 public:
  explicit RefusedJson(std::optional<std::string> repeated) : repeated_(std::move(repeated)) {}
  [[nodiscard]] char const* what() const noexcept override { return "a key twice in one object, or too deep nesting"; }
  /// The key that an object has twice; empty where the nesting is too deep.
  [[nodiscard]] std::optional<std::string> const& repeated() const noexcept { return repeated_; }

 private:
  std::optional<std::string> repeated_;
};

/// Parses JSON strictly, in time that grows with the text's length: keys that repeat and nesting deeper than `deepest`
/// are refused. The library alone would keep the last of a key's values, and would nest until copying a value exhausts
/// the stack.
/// @throws RefusedJson; Json::parse_error, Json::out_of_range (a number) as the library's own parser does
[[nodiscard]] nlohmann::json parse_strict_json(std::string_view text, std::size_t deepest);

}  // namespace weft
