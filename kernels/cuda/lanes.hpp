#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/block.hpp"
#include "weft/data_type.hpp"

namespace weft::kernels::cuda {

/// kCount elements, computed in f32.
template <int kCount>
struct Lanes {
  static constexpr int kLanes = kCount;
  float x[kCount];
};

/// kCount elements as they are stored: one or two per word. Separate from Lanes so that a thread can issue all its
/// loads before it waits for the first.
template <int kCount>
struct RawLanes {
  std::uint32_t word[kCount];
};

#ifdef __CUDACC__
// The chip's own conversions: they round to nearest even, overflow to infinity, and keep NaN.
__device__ inline float widen_half(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline std::uint16_t narrow_half(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline std::uint16_t narrow_bfloat16(float value) {
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline float from_bits(std::uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ inline std::uint32_t to_bits(float value) {
  return __float_as_uint(value);
}
template <typename Word>
__device__ Word load_word(void const* from) {
  __builtin_assume(__isGlobal(from));  // addresses come from tables, so the compiler cannot know
  return *static_cast<Word const*>(from);
}
template <typename Word>
__device__ void store_word(void* to, Word const& word) {
  __builtin_assume(__isGlobal(to));
  *static_cast<Word*>(to) = word;
}
using Word16 = uint4;
using Word8 = uint2;
#else
inline float widen_half(std::uint16_t bits) {
  return to_float(Half{bits});
}
inline std::uint16_t narrow_half(float value) {
  return to_half(value).bits;
}
inline std::uint16_t narrow_bfloat16(float value) {
  return to_bfloat16(value).bits;
}
inline float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
template <typename Word>
Word load_word(void const* from) {
  return *static_cast<Word const*>(from);  // a misaligned one is a mistake that the sanitizer finds
}
template <typename Word>
void store_word(void* to, Word const& word) {
  *static_cast<Word*>(to) = word;
}
struct alignas(16) Word16 {
  std::uint32_t x, y, z, w;
};
struct alignas(8) Word8 {
  std::uint32_t x, y;
};
#endif

/// Part of a tensor in device memory: f32, bf16 or f16.
struct Array {
  std::byte* data = nullptr;
  DataType type = DataType::f32;

  /// The array from element `first` on; null if `base` is null.
  static WEFT_KERNEL Array from(void const* base, DataType type, std::uint64_t first) {
    if (base == nullptr) return {nullptr, type};
    auto* const bytes = static_cast<std::byte*>(const_cast<void*>(base));
    return {bytes + first * (type == DataType::f32 ? 4 : 2), type};
  }

  [[nodiscard]] WEFT_KERNEL bool narrow() const { return type != DataType::f32; }

  /// Loads elements [i, i + kCount), i a multiple of kCount. Uses accesses of 16 bytes, or 8 for narrow types, if the
  /// array is aligned for them, else one access per element.
  template <int kCount>
  WEFT_KERNEL RawLanes<kCount> load(std::uint32_t i) const;
  template <int kCount>
  WEFT_KERNEL void store(Lanes<kCount> const& lanes, std::uint32_t i) const;

 private:
  [[nodiscard]] WEFT_KERNEL std::uint16_t* halves() const { return reinterpret_cast<std::uint16_t*>(data); }
  [[nodiscard]] WEFT_KERNEL std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(data); }
  [[nodiscard]] WEFT_KERNEL bool aligned_to(unsigned bytes) const {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
  }
};

WEFT_KERNEL inline float widen(DataType type, std::uint16_t bits) {
  return type == DataType::bf16 ? from_bits(static_cast<std::uint32_t>(bits) << 16) : widen_half(bits);
}
WEFT_KERNEL inline std::uint16_t narrowed(DataType type, float value) {
  return type == DataType::bf16 ? narrow_bfloat16(value) : narrow_half(value);
}

template <int kCount>
WEFT_KERNEL Lanes<kCount> widen(RawLanes<kCount> const& raw, DataType type) {
  Lanes<kCount> lanes;
  for (int k = 0; k < kCount; ++k) {
    if (type == DataType::f32) {
      lanes.x[k] = from_bits(raw.word[k]);
    } else {
      lanes.x[k] = widen(type, static_cast<std::uint16_t>(raw.word[k / 2] >> (16 * (k % 2))));
    }
  }
  return lanes;
}

template <int kCount>
WEFT_KERNEL RawLanes<kCount> narrowed(Lanes<kCount> const& lanes, DataType type) {
  RawLanes<kCount> raw{};
  for (int k = 0; k < kCount; ++k) {
    if (type == DataType::f32) {
      raw.word[k] = to_bits(lanes.x[k]);
    } else {
      raw.word[k / 2] |= static_cast<std::uint32_t>(narrowed(type, lanes.x[k])) << (16 * (k % 2));
    }
  }
  return raw;
}

template <int kCount>
WEFT_KERNEL RawLanes<kCount> Array::load(std::uint32_t i) const {
  RawLanes<kCount> raw{};
  if constexpr (kCount % 4 == 0) {
    if (!narrow() && aligned_to(16)) {
      for (int k = 0; k < kCount; k += 4) {
        auto const four = load_word<Word16>(words() + i + k);
        raw.word[k] = four.x;
        raw.word[k + 1] = four.y;
        raw.word[k + 2] = four.z;
        raw.word[k + 3] = four.w;
      }
      return raw;
    }
    if constexpr (kCount % 8 == 0) {
      if (narrow() && aligned_to(16)) {
        for (int k = 0; k < kCount; k += 8) {
          auto const four = load_word<Word16>(halves() + i + k);
          raw.word[k / 2] = four.x;
          raw.word[k / 2 + 1] = four.y;
          raw.word[k / 2 + 2] = four.z;
          raw.word[k / 2 + 3] = four.w;
        }
        return raw;
      }
    }
    if (narrow() && aligned_to(8)) {
      for (int k = 0; k < kCount; k += 4) {
        auto const two = load_word<Word8>(halves() + i + k);
        raw.word[k / 2] = two.x;
        raw.word[k / 2 + 1] = two.y;
      }
      return raw;
    }
  }
  for (int k = 0; k < kCount; ++k) {
    if (narrow()) {
      raw.word[k / 2] |= static_cast<std::uint32_t>(halves()[i + k]) << (16 * (k % 2));
    } else {
      raw.word[k] = words()[i + k];
    }
  }
  return raw;
}

template <int kCount>
WEFT_KERNEL void Array::store(Lanes<kCount> const& lanes, std::uint32_t i) const {
  auto const raw = narrowed(lanes, type);
  if constexpr (kCount % 4 == 0) {
    if (!narrow() && aligned_to(16)) {
      for (int k = 0; k < kCount; k += 4) {
        store_word(words() + i + k, Word16{raw.word[k], raw.word[k + 1], raw.word[k + 2], raw.word[k + 3]});
      }
      return;
    }
    if constexpr (kCount % 8 == 0) {
      if (narrow() && aligned_to(16)) {
        for (int k = 0; k < kCount; k += 8) {
          int const w = k / 2;
          store_word(halves() + i + k, Word16{raw.word[w], raw.word[w + 1], raw.word[w + 2], raw.word[w + 3]});
        }
        return;
      }
    }
    if (narrow() && aligned_to(8)) {
      for (int k = 0; k < kCount; k += 4) store_word(halves() + i + k, Word8{raw.word[k / 2], raw.word[k / 2 + 1]});
      return;
    }
  }
  for (int k = 0; k < kCount; ++k) {
    if (narrow()) {
      halves()[i + k] = static_cast<std::uint16_t>(raw.word[k / 2] >> (16 * (k % 2)));
    } else {
      words()[i + k] = raw.word[k];
    }
  }
}

}  // namespace weft::kernels::cuda
