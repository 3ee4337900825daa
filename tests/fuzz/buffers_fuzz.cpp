// Any bytes at all as a table of buffers: read_problem() either makes buffers, one a row, or names the line that is
// wrong.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft_memory/problem_csv.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::istringstream text(std::string(reinterpret_cast<char const*>(data), size));
  try {
    auto const problem = weft::memory_tool::read_problem(text, "fuzz.csv");
    std::ostringstream out;
    write_solution(out, problem, std::vector<std::int64_t>(problem.buffers.size(), 0));
    if (problem.rows.size() == problem.buffers.size()) return 0;
    std::fprintf(stderr, "%zu rows, %zu buffers\n", problem.rows.size(), problem.buffers.size());
  } catch (std::runtime_error const& error) {
    if (std::string(error.what()).rfind("fuzz.csv:", 0) == 0) return 0;
    std::fprintf(stderr, "names no line: %s\n", error.what());
  }
  std::abort();
}
