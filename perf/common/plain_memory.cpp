#include "common/plain_memory.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "weft/error.hpp"

namespace weft::perf {

Buffer plain_buffer(std::size_t count, DataType dtype) {
  constexpr std::size_t kLine = 64;
  auto const bytes = (count * size_of(dtype) + kLine) / kLine * kLine;
  void* const memory = std::aligned_alloc(kLine, bytes);
  if (memory == nullptr)
    throw Error(ErrorCode::out_of_memory, fmt::format("perf: cannot allocate {} bytes; measure smaller sizes", bytes));
  std::memset(memory, 0, bytes);
  return {std::shared_ptr<void>(memory, std::free), count, dtype, Device{}};
}

}  // namespace weft::perf
