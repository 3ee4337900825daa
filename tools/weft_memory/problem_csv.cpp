#include "weft_memory/problem_csv.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string_view>

#include "scheduler/memory/check_buffers.hpp"
#include "weft/error.hpp"

namespace weft::memory_tool {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    std::size_t const end = text.find(separator, at);
    parts.emplace_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

/// Why nothing can be planned for these buffers; none where it can.
std::optional<std::string> refusal(std::span<PlannedBuffer const> buffers) {
  try {
    check_buffers(buffers, {});
    return std::nullopt;
  } catch (Error const& error) {
    return error.what();
  }
}

/// Reads rows below a line of column names.
class Reader {
 public:
  Reader(std::istream& in, std::string const& source) : in_(in), source_(source) {}

  Problem read() {
    std::string text;
    if (!next(text)) fail("empty; it begins with a line of column names");
    problem_.columns = split(text, ',');
    find_columns();
    while (next(text)) {
      if (text.empty()) {
        while (next(text)) {
          if (!text.empty()) fail("a row after an empty line");
        }
        break;
      }
      add(split(text, ','));
      problem_.lines.push_back(line_);
    }
    return std::move(problem_);
  }

 private:
  bool next(std::string& text) {
    if (!std::getline(in_, text)) return false;
    ++line_;
    if (!text.empty() && text.back() == '\r') text.pop_back();
    return true;
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw std::runtime_error(fmt::format("{}:{}: {}", source_, line_, what));
  }

  void find_columns() {
    static std::map<std::string, std::string> const synonyms{
        {"buffer", "id"}, {"buffer_id", "id"}, {"begin", "lower"}, {"start", "lower"}, {"end", "upper"}};
    for (std::size_t i = 0; i < problem_.columns.size(); ++i) {
      std::string const& given = problem_.columns[i];
      auto const known = synonyms.find(given);
      std::string const& name = known == synonyms.end() ? given : known->second;
      if (!column_.emplace(name, i).second) fail(fmt::format("column {} is there twice", name));
      if (given == "end") last_is_within_ = true;
    }
    for (char const* const name : {"id", "lower", "upper", "size"}) {
      if (column_.count(name) == 0) fail(fmt::format("no column {} among {}", name, fmt::join(problem_.columns, ", ")));
    }
  }

  [[nodiscard]] std::int64_t number(std::string_view text, char const* what) const {
    std::int64_t value = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    fail(fmt::format("{} is \"{}\", no whole number of 64 bits", what, text));
  }

  /// After a moment that is needed still.
  [[nodiscard]] std::int64_t end_of(std::string_view text, char const* what) const {
    std::int64_t const value = number(text, what);
    if (!last_is_within_) return value;
    if (value == std::numeric_limits<std::int64_t>::max()) fail(fmt::format("{} {} is too late", what, value));
    return value + 1;
  }

  [[nodiscard]] LifeGap gap(std::string_view text) const {
    std::string_view const when = text.substr(0, text.find('@'));
    std::size_t const dash = when.find('-', 1);  // a first one is a sign
    if (dash == std::string_view::npos) fail(fmt::format("gap \"{}\" is not like 5-8 or 5-8@0:64", text));
    LifeGap gap{{number(when.substr(0, dash), "a gap's begin"), end_of(when.substr(dash + 1), "a gap's end")}};
    if (when.size() == text.size()) return gap;
    std::string_view const kept = text.substr(when.size() + 1);
    std::size_t const colon = kept.find(':');
    if (colon == std::string_view::npos) fail(fmt::format("gap \"{}\" is not like 5-8 or 5-8@0:64", text));
    gap.kept_begin = number(kept.substr(0, colon), "a gap's first byte");
    gap.kept_end = number(kept.substr(colon + 1), "a gap's last byte");
    return gap;
  }

  void add(std::vector<std::string> row) {
    if (row.size() != problem_.columns.size()) {
      fail(fmt::format("{} fields for {} columns", row.size(), problem_.columns.size()));
    }
    auto const field = [&](char const* name) -> std::string const& { return row[column_.at(name)]; };
    PlannedBuffer buffer;
    buffer.name = field("id");
    buffer.life = {number(field("lower"), "lower"), end_of(field("upper"), last_is_within_ ? "end" : "upper")};
    buffer.bytes = number(field("size"), "size");
    if (column_.count("alignment") != 0) buffer.alignment = number(field("alignment"), "alignment");
    if (column_.count("gaps") != 0) {
      for (auto const& text : split(field("gaps"), ' ')) {
        if (!text.empty()) buffer.gaps.push_back(gap(text));
      }
    }
    problem_.buffers.push_back(std::move(buffer));
    problem_.rows.push_back(std::move(row));
  }

  std::istream& in_;
  std::string const& source_;
  Problem problem_;
  std::map<std::string, std::size_t> column_;
  bool last_is_within_ = false;
  int line_ = 0;
};

}  // namespace

Problem read_problem(std::istream& in, std::string const& source) {
  return Reader(in, source).read();
}

void check(Problem const& problem, std::string const& source) {
  std::span<PlannedBuffer const> const all = problem.buffers;
  auto const why = refusal(all);
  if (!why) return;
  std::size_t good = 0;  // so many buffers are not refused, and `bad` are
  for (std::size_t bad = all.size(); bad - good > 1;) {
    std::size_t const middle = good + (bad - good) / 2;
    (refusal(all.first(middle)) ? bad : good) = middle;
  }
  throw std::runtime_error(fmt::format("{}:{}: {}", source, problem.lines[good], *why));
}

void align(Problem& problem, std::int64_t bytes) {
  for (auto& buffer : problem.buffers) {
    std::int64_t const times = bytes / std::gcd(buffer.alignment, bytes);
    bool const fits = buffer.alignment <= std::numeric_limits<std::int64_t>::max() / times;
    buffer.alignment = fits ? buffer.alignment * times : std::numeric_limits<std::int64_t>::max();  // is refused
  }
}

void write_solution(std::ostream& out, Problem const& problem, std::span<std::int64_t const> offsets) {
  auto columns = problem.columns;
  auto const at = static_cast<std::size_t>(std::find(columns.begin(), columns.end(), "offset") - columns.begin());
  if (at == columns.size()) columns.emplace_back("offset");
  out << fmt::format("{}\n", fmt::join(columns, ","));
  for (std::size_t i = 0; i < problem.rows.size(); ++i) {
    auto row = problem.rows[i];
    row.resize(columns.size());
    row[at] = std::to_string(offsets[i]);
    out << fmt::format("{}\n", fmt::join(row, ","));
  }
}

}  // namespace weft::memory_tool
