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
///   lower (begin, start), upper: when it is needed, without upper itself; a column `end` instead is the last moment
///   alignment, in bytes (optional)
///   gaps (optional): "5-8 12-13@0:64", moments as above; with @, the bytes of the buffer that are needed even then
///   offset (optional): not read
struct Problem {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<PlannedBuffer> buffers;
  std::vector<int> lines{};  ///< of the rows in what was read
};

/// @throws std::runtime_error "SOURCE:LINE: what" for what plan_memory() would refuse of `problem`, which was read.
void check(Problem const& problem, std::string const& source);

/// Every offset is to be a multiple of `bytes` besides what the table says. `bytes` is at least 1.
void align(Problem& problem, std::int64_t bytes);

/// Lines end at \n or \r\n; empty ones at the end are passed over. @throws std::runtime_error "SOURCE:LINE: what",
/// for columns that are missing or there twice, rows of other lengths, and what is no number.
[[nodiscard]] Problem read_problem(std::istream& in, std::string const& source);

/// The same table with `offsets` in its offset column, which is added as the last one where it was not there.
void write_solution(std::ostream& out, Problem const& problem, std::span<std::int64_t const> offsets);

}  // namespace weft::memory_tool
