#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "weft/buffer.hpp"

namespace weft::perf {

/// What an application does around a call: write all of the call's input and read all of its output.
///
/// The values differ from iteration to iteration and from rank to rank, are small whole numbers of the data type (no
/// denormals, no overflow), and are written with plain stores, 64 bytes at a time, as a backward pass would leave them.
class Pattern {
 public:
  Pattern(DataType dtype, int rank);

  void write(BufferView buffer, std::uint64_t iteration) const noexcept;

 private:
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kBlocks = 8;
  alignas(kBlock) std::array<std::array<std::byte, kBlock>, kBlocks> blocks_{};
};

/// Loads every byte of `buffer` and combines them, so that the compiler cannot leave the loads out.
void read_all(ConstBufferView buffer) noexcept;

/// encode() stores `value` as one element of `dtype` at `target`; decode() reads it back.
void encode(DataType dtype, double value, void* target);
[[nodiscard]] double decode(DataType dtype, void const* source);

}  // namespace weft::perf
