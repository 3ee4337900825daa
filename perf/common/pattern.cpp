#include "common/pattern.hpp"

#include <complex>
#include <cstring>
#include <limits>

namespace weft::perf {
namespace {

template <typename T>
void put(T value, void* target) {
  std::memcpy(target, &value, sizeof(T));
}

template <typename T>
T get(void const* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

/// Inputs have no imaginary part, so an output with one is wrong and does not become a number that could be expected.
template <typename T>
double real_part(std::complex<T> value) {
  return value.imag() == 0 ? value.real() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void encode(DataType dtype, double value, void* target) {
  switch (dtype) {
    case DataType::i8: return put(static_cast<std::int8_t>(value), target);
    case DataType::u8: return put(static_cast<std::uint8_t>(value), target);
    case DataType::i32: return put(static_cast<std::int32_t>(value), target);
    case DataType::u32: return put(static_cast<std::uint32_t>(value), target);
    case DataType::i64: return put(static_cast<std::int64_t>(value), target);
    case DataType::u64: return put(static_cast<std::uint64_t>(value), target);
    case DataType::f16: return put(to_half(static_cast<float>(value)), target);
    case DataType::bf16: return put(to_bfloat16(static_cast<float>(value)), target);
    case DataType::f32: return put(static_cast<float>(value), target);
    case DataType::f64: return put(value, target);
    case DataType::f8e4m3: return put(to_float8_e4m3(static_cast<float>(value)), target);
    case DataType::f8e5m2: return put(to_float8_e5m2(static_cast<float>(value)), target);
    case DataType::c64: return put(std::complex<float>(static_cast<float>(value)), target);
    case DataType::c128: return put(std::complex<double>(value), target);
    case DataType::boolean: return put(static_cast<std::uint8_t>(value != 0 ? 1 : 0), target);
    case DataType::i16: return put(static_cast<std::int16_t>(value), target);
    case DataType::u16: return put(static_cast<std::uint16_t>(value), target);
  }
}

double decode(DataType dtype, void const* source) {
  switch (dtype) {
    case DataType::i8: return get<std::int8_t>(source);
    case DataType::u8: return get<std::uint8_t>(source);
    case DataType::i32: return get<std::int32_t>(source);
    case DataType::u32: return get<std::uint32_t>(source);
    case DataType::i64: return static_cast<double>(get<std::int64_t>(source));
    case DataType::u64: return static_cast<double>(get<std::uint64_t>(source));
    case DataType::f16: return to_float(get<Half>(source));
    case DataType::bf16: return to_float(get<BFloat16>(source));
    case DataType::f32: return get<float>(source);
    case DataType::f64: return get<double>(source);
    case DataType::f8e4m3: return to_float(get<Float8E4M3>(source));
    case DataType::f8e5m2: return to_float(get<Float8E5M2>(source));
    case DataType::c64: return real_part(get<std::complex<float>>(source));
    case DataType::c128: return real_part(get<std::complex<double>>(source));
    case DataType::boolean: return get<std::uint8_t>(source);
    case DataType::i16: return get<std::int16_t>(source);
    case DataType::u16: return get<std::uint16_t>(source);
  }
  return 0;
}

Pattern::Pattern(DataType dtype, int rank) {
  auto const size = size_of(dtype);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    for (std::size_t lane = 0; lane < kBlock / size; ++lane) {
      auto const value = static_cast<double>((b + 3 * lane + static_cast<std::size_t>(rank)) % 5 + 1);
      encode(dtype, value, blocks_[b].data() + lane * size);
    }
  }
}

void Pattern::write(BufferView buffer, std::uint64_t iteration) const noexcept {
  auto const* const block = blocks_[iteration % kBlocks].data();
  auto* const target = static_cast<std::byte*>(buffer.data);
  auto const bytes = buffer.bytes();
  std::size_t at = 0;
  for (; at + kBlock <= bytes; at += kBlock) std::memcpy(target + at, block, kBlock);
  if (at < bytes) std::memcpy(target + at, block, bytes - at);
  // Keeps the stores even if the compiler sees no load of them.
  asm volatile("" : : "r"(target) : "memory");
}

void read_all(ConstBufferView buffer) noexcept {
  auto const* const source = static_cast<std::byte const*>(buffer.data);
  auto const bytes = buffer.bytes();
  constexpr std::size_t kLanes = 8;
  std::uint64_t sums[kLanes] = {};
  std::size_t at = 0;
  for (; at + sizeof(sums) <= bytes; at += sizeof(sums)) {
    std::uint64_t words[kLanes];
    std::memcpy(words, source + at, sizeof(words));
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[lane];
  }
  std::uint64_t rest[kLanes] = {};
  if (at < bytes) std::memcpy(rest, source + at, bytes - at);
  std::uint64_t sum = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) sum += sums[lane] + rest[lane];
  asm volatile("" : : "r"(sum) : "memory");
}

}  // namespace weft::perf
