#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// Reads a module's text from left to right. Comments count as spaces.
class Cursor {
 public:
  explicit Cursor(Module const& module, std::size_t at = 0) : module_(module), text_(module.view()), at_(at) {}

  [[nodiscard]] std::size_t position() const noexcept { return at_; }
  [[nodiscard]] bool at_end() const noexcept { return at_ >= text_.size(); }
  [[nodiscard]] char peek() const noexcept { return at_end() ? '\0' : text_[at_]; }
  [[nodiscard]] std::string_view since(std::size_t start) const { return text_.substr(start, at_ - start); }

  void seek(std::size_t position) noexcept { at_ = position; }
  void skip_space();   ///< line ends too
  void skip_blanks();  ///< within the line
  bool take(char wanted);
  bool take(std::string_view wanted);
  void expect(char wanted);
  /// Letters, digits and "_.-$"; may be empty.
  std::string_view word();
  std::string_view expect_word(std::string_view what);
  std::int64_t expect_integer(std::string_view what);
  /// The text up to the first of `ends` (or to the line's end, where `within_line`) that no bracket or quote encloses.
  std::string_view until(std::string_view ends, bool within_line);
  Shape shape() { return shape(0); }

  [[noreturn]] void fail(std::string const& what) const { hlo::fail(module_, at_, what); }

 private:
  Shape shape(int depth);
  Shape tuple(int depth);
  void array_dims(Shape& array);
  void array_layout(Shape& array);
  bool skip_comment();

  Module const& module_;
  std::string_view text_;
  std::size_t at_;
};

}  // namespace weft::hlo
