#include "importers/hlo/attributes.hpp"

#include <fmt/format.h>

#include <unordered_set>

#include "importers/hlo/cursor.hpp"

namespace weft::hlo {
namespace {

constexpr std::int64_t kMostRanks = 1 << 17;

std::size_t position_of(Module const& module, std::string_view part) {
  return static_cast<std::size_t>(part.data() - module.text.data());
}

/// Reads "{1,2}", or the same with other brackets.
std::vector<std::int64_t> list(Cursor& cursor, char open, char close) {
  std::vector<std::int64_t> numbers;
  cursor.expect(open);
  for (cursor.skip_space(); !cursor.take(close); cursor.skip_space()) {
    if (!numbers.empty()) cursor.expect(',');
    cursor.skip_space();
    numbers.push_back(cursor.expect_integer("a number"));
  }
  return numbers;
}

std::int64_t product(Cursor const& cursor, std::vector<std::int64_t> const& dims) {
  std::int64_t all = 1;
  for (auto const dim : dims) {
    if (dim <= 0 || dim > kMostRanks || all * dim > kMostRanks) {
      cursor.fail(fmt::format("groups of fewer than 1 or more than {} ranks", kMostRanks));
    }
    all *= dim;
  }
  return all;
}

/// The numbers from 0 in an array of shape `dims`, read in the order of its permuted dimensions.
std::vector<int> permuted_iota(Cursor const& cursor, std::vector<std::int64_t> const& dims,
                               std::vector<std::int64_t> const& order) {
  std::vector<bool> seen(dims.size());
  for (auto const dim : order) {
    if (dim < 0 || dim >= static_cast<std::int64_t>(dims.size()) || seen[static_cast<std::size_t>(dim)]) {
      cursor.fail("T(…) is no order of the dimensions");
    }
    seen[static_cast<std::size_t>(dim)] = true;
  }
  if (order.size() != dims.size()) cursor.fail("T(…) leaves out dimensions");
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (auto i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  std::vector<int> numbers{0};
  for (auto const dim : order) {
    auto const at = static_cast<std::size_t>(dim);
    std::vector<int> more;
    more.reserve(numbers.size() * static_cast<std::size_t>(dims[at]));
    for (int const number : numbers) {
      for (std::int64_t i = 0; i < dims[at]; ++i) more.push_back(number + static_cast<int>(i * strides[at]));
    }
    numbers = std::move(more);
  }
  return numbers;
}

std::vector<std::vector<int>> from_formula(Cursor& cursor) {
  auto const shape = list(cursor, '[', ']');
  if (shape.size() != 2) cursor.fail("expected [sets,ranks of a set]<=[…]");
  if (!cursor.take("<=")) cursor.fail("expected \"<=\"");
  auto const dims = list(cursor, '[', ']');
  std::vector<std::int64_t> order;
  if (cursor.take('T')) {
    order = list(cursor, '(', ')');
  } else {
    for (std::size_t i = 0; i < dims.size(); ++i) order.push_back(static_cast<std::int64_t>(i));
  }
  if (product(cursor, shape) != product(cursor, dims))
    cursor.fail("groups that have more or fewer ranks than there are");
  auto const numbers = permuted_iota(cursor, dims, order);
  std::vector<std::vector<int>> sets;
  for (auto at = numbers.begin(); at != numbers.end(); at += shape[1]) sets.emplace_back(at, at + shape[1]);
  return sets;
}

std::vector<std::vector<int>> explicit_sets(Cursor& cursor) {
  std::vector<std::vector<int>> sets;
  std::unordered_set<std::int64_t> seen;
  cursor.expect('{');
  for (cursor.skip_space(); !cursor.take('}'); cursor.skip_space()) {
    if (!sets.empty()) cursor.expect(',');
    cursor.skip_space();
    auto& set = sets.emplace_back();
    for (auto const rank : list(cursor, '{', '}')) {
      if (rank < 0 || rank >= kMostRanks) cursor.fail(fmt::format("{} is no rank", rank));
      if (!seen.insert(rank).second) cursor.fail(fmt::format("rank {} is named twice", rank));
      set.push_back(static_cast<int>(rank));
    }
    if (set.empty() || set.size() != sets.front().size()) cursor.fail("sets of different sizes, or empty ones");
  }
  return sets;
}

}  // namespace

std::vector<std::int64_t> integers(Module const& module, Instruction const& instruction, std::string_view name) {
  auto const text = find(instruction, name);
  if (!text) return {};
  Cursor cursor(module, position_of(module, *text));
  return list(cursor, '{', '}');
}

std::optional<std::int64_t> integer(Module const& module, Instruction const& instruction, std::string_view name) {
  auto const text = find(instruction, name);
  if (!text) return std::nullopt;
  Cursor cursor(module, position_of(module, *text));
  return cursor.expect_integer(name);
}

std::vector<int> computations(Module const& module, Instruction const& instruction, std::string_view name) {
  auto const text = find(instruction, name);
  if (!text) return {};
  Cursor cursor(module, position_of(module, *text));
  std::vector<int> found;
  bool const several = cursor.take('{');
  do {
    cursor.skip_space();
    cursor.take('%');
    auto const start = cursor.position();
    auto const called = cursor.expect_word("a computation");
    auto const at = module.by_name.find(called);
    if (at == module.by_name.end()) fail(module, start, fmt::format("there is no computation {}", called));
    found.push_back(at->second);
    cursor.skip_space();
  } while (several && cursor.take(','));
  if (several) cursor.expect('}');
  return found;
}

std::vector<std::vector<int>> replica_groups(Module const& module, Instruction const& instruction, int ranks) {
  auto const text = find(instruction, "replica_groups");
  std::vector<std::vector<int>> sets;
  if (text) {
    Cursor cursor(module, position_of(module, *text));
    sets = cursor.peek() == '[' ? from_formula(cursor) : explicit_sets(cursor);
  }
  if (sets.empty()) {
    sets.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) sets.front().push_back(rank);
  }
  return sets;
}

std::vector<std::pair<int, int>> source_target_pairs(Module const& module, Instruction const& instruction) {
  std::vector<std::pair<int, int>> pairs;
  auto const text = find(instruction, "source_target_pairs");
  if (!text) return pairs;
  Cursor cursor(module, position_of(module, *text));
  cursor.expect('{');
  for (cursor.skip_space(); !cursor.take('}'); cursor.skip_space()) {
    if (!pairs.empty()) cursor.expect(',');
    auto const pair = list(cursor, '{', '}');
    if (pair.size() != 2 || pair[0] < 0 || pair[1] < 0 || pair[0] >= kMostRanks || pair[1] >= kMostRanks) {
      cursor.fail("expected {source,target}");
    }
    pairs.emplace_back(static_cast<int>(pair[0]), static_cast<int>(pair[1]));
  }
  return pairs;
}

}  // namespace weft::hlo
