#include "importers/hlo/cursor.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace weft::hlo {
namespace {

constexpr int kDeepestTuple = 64;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '$';
}

}  // namespace

bool Cursor::skip_comment() {
  if (!text_.substr(at_).starts_with("/*")) return false;
  auto const end = text_.find("*/", at_ + 2);
  if (end == std::string_view::npos) fail("the comment that starts here does not end");
  at_ = end + 2;
  return true;
}

void Cursor::skip_blanks() {
  while (!at_end()) {
    char const c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c != '/' || !skip_comment()) {
      return;
    }
  }
}

void Cursor::skip_space() {
  do skip_blanks();
  while (take('\n'));
}

bool Cursor::take(char wanted) {
  if (at_end() || text_[at_] != wanted) return false;
  ++at_;
  return true;
}

bool Cursor::take(std::string_view wanted) {
  if (!text_.substr(at_).starts_with(wanted)) return false;
  at_ += wanted.size();
  return true;
}

void Cursor::expect(char wanted) {
  skip_space();
  if (!take(wanted)) fail(fmt::format("expected '{}'{}", wanted, at_end() ? ", found the end of the text" : ""));
}

std::string_view Cursor::word() {
  auto const start = at_;
  while (!at_end() && is_word(text_[at_])) ++at_;
  return since(start);
}

std::string_view Cursor::expect_word(std::string_view what) {
  auto const found = word();
  if (found.empty()) fail(fmt::format("expected {}", what));
  return found;
}

std::int64_t Cursor::expect_integer(std::string_view what) {
  std::int64_t value = 0;
  auto const* const begin = text_.data() + at_;
  auto const [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc{}) fail(fmt::format("expected {}, a whole number", what));
  at_ += static_cast<std::size_t>(end - begin);
  return value;
}

std::string_view Cursor::until(std::string_view ends, bool within_line) {
  auto const start = at_;
  int depth = 0;
  bool quoted = false;
  for (; !at_end(); ++at_) {
    char const c = text_[at_];
    if (quoted) {
      if (c == '\\') ++at_;
      if (c == '"') quoted = false;
      continue;
    }
    if (depth == 0 && (ends.find(c) != std::string_view::npos || (within_line && c == '\n'))) break;
    if (c == '"') quoted = true;
    if (c == '{' || c == '(' || c == '[') ++depth;
    if (c == '}' || c == ')' || c == ']') --depth;
    if (depth < 0) fail(fmt::format("'{}' closes nothing", c));
  }
  if (at_ > text_.size()) at_ = text_.size();
  if (quoted || depth != 0) {
    hlo::fail(module_, start,
              quoted ? "a quote that starts here does not end" : "a bracket that opens here does not close");
  }
  auto found = since(start);
  while (!found.empty() && (found.back() == ' ' || found.back() == '\r' || found.back() == '\t'))
    found.remove_suffix(1);
  return found;
}

Shape Cursor::shape(int depth) {
  skip_space();
  if (depth > kDeepestTuple) fail(fmt::format("tuples nested deeper than {}", kDeepestTuple));
  if (take('(')) return tuple(depth);
  Shape array;
  auto const start = at_;
  array.type = expect_word("a shape");
  int const bits = bits_of_type(array.type);
  if (bits < 0) hlo::fail(module_, start, fmt::format("\"{}\" is no element type", array.type));
  if (take('[')) array_dims(array);
  if (peek() == '{') array_layout(array);
  std::int64_t bits_in_all = 0;
  if (__builtin_mul_overflow(array.elements, std::int64_t{bits}, &bits_in_all)) {
    hlo::fail(module_, start, "an array of more bytes than can be counted");
  }
  array.bytes = bits_in_all / 8 + (bits_in_all % 8 != 0);
  return array;
}

Shape Cursor::tuple(int depth) {
  Shape tuple;
  tuple.is_tuple = true;
  tuple.leaves = 0;
  skip_space();
  if (take(')')) return tuple;
  do {
    Shape part = shape(depth + 1);
    part.first_leaf = tuple.leaves;
    tuple.leaves += part.leaves;
    if (part.bytes > kMostBytes - tuple.bytes) fail("a tuple of more bytes than can be counted");
    tuple.bytes += part.bytes;
    tuple.parts.push_back(std::move(part));
    skip_space();
  } while (take(','));
  expect(')');
  return tuple;
}

void Cursor::array_dims(Shape& array) {
  skip_space();
  if (take(']')) return;
  do {
    skip_space();
    take("<=");  // a bound of a dimension that varies
    std::int64_t const dim = expect_integer("a dimension");
    if (dim < 0) fail(fmt::format("a dimension of {}", dim));
    array.dims.push_back(dim);
    if (__builtin_mul_overflow(array.elements, dim, &array.elements) || array.elements > kMostBytes) {
      fail("an array of more elements than can be counted");
    }
    skip_space();
  } while (take(','));
  expect(']');
}

void Cursor::array_layout(Shape& array) {
  auto const rank = static_cast<std::int64_t>(array.dims.size());
  expect('{');
  std::vector<bool> seen(array.dims.size());
  while (peek() >= '0' && peek() <= '9') {
    std::int64_t const dim = expect_integer("a dimension's number");
    if (dim >= rank || seen[static_cast<std::size_t>(dim)]) fail("a layout that is no order of the dimensions");
    seen[static_cast<std::size_t>(dim)] = true;
    array.layout.push_back(dim);
    take(',');
  }
  if (!array.layout.empty() && array.layout.size() != array.dims.size()) fail("a layout that leaves out dimensions");
  until("}", true);  // tiles, memory spaces
  expect('}');
}

}  // namespace weft::hlo
