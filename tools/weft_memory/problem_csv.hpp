#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "weft/memory_plan.hpp"

namespace weft::memory_tool {

/// A table of buffers in the format of minimalloc's benchmarks: a line of column names, then a line per buffer.
///   id (also buffer, buffer_id), size in bytes
///   lower (begin, start), upper: when it is needed, without upper itself; a column `end` instead of upper is the last
///   moment
///   alignment, in bytes (optional)
///   gaps (optional): "5-8 12-13@0:64", moments as above; with @, the bytes of the buffer that are needed even then
///   offset (optional): not read
struct Problem {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<PlannedBuffer> buffers;
  std::vector<int> lines{};  ///< the rows' line numbers in the input
};

/// @throws std::runtime_error "SOURCE:LINE: what" if plan_memory() would refuse something in `problem`, which has been
/// read from `source`.
void check(Problem const& problem, std::string const& source);

/// Requires every offset to be a multiple of `bytes`, in addition to the table's alignments. `bytes` is at least 1.
void align(Problem& problem, std::int64_t bytes);

/// Reads a table. Lines end with \n or \r\n; empty lines at the end are skipped. @throws std::runtime_error
/// "SOURCE:LINE: what", for missing or repeated columns, rows of other lengths, and values that are not numbers.
[[nodiscard]] Problem read_problem(std::istream& in, std::string const& source);

/// Writes the same table with `offsets` in its offset column, which is added as the last column if it is missing.
void write_solution(std::ostream& out, Problem const& problem, std::span<std::int64_t const> offsets);

}  // namespace weft::memory_tool
