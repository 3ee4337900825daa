#include "kernels/cpu/reduce.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifndef WEFT_KERNELS_CPU_COPY_ONCE
#define WEFT_KERNELS_CPU_COPY_ONCE
namespace weft::kernels {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

/// The first aligned word at or after `data`, which therefore lies within one line.
inline std::uint8_t const* whole_word(std::uint8_t const* data) noexcept {
  return data + (kWordBytes - reinterpret_cast<std::uintptr_t>(data) % kWordBytes) % kWordBytes;
}

/// Stores a word as it is found. In assembly, so that no compiler leaves it out and no sanitizer sees a write.
inline void store_again([[maybe_unused]] std::uint8_t const* word) noexcept {
#if defined(__x86_64__)
  std::uint64_t value = 0;
  asm volatile("movq %1, %0\n\tmovq %0, %1"
               : "=&r"(value)
               : "m"(*reinterpret_cast<std::uint64_t const*>(word))
               : "memory");
#endif
}

}  // namespace weft::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Copies bytes [i, bytes), past the caches if kStreams; then `dst + i` must be aligned to a line.
template <bool kStreams>
void copy_from(std::size_t i, std::uint8_t* dst, std::uint8_t const* src, std::size_t bytes) {
  hn::ScalableTag<std::uint8_t> const d;
  std::size_t const n = hn::Lanes(d);
  for (; i + 4 * n <= bytes; i += 4 * n) {
    auto const a = hn::LoadU(d, src + i);
    auto const b = hn::LoadU(d, src + i + n);
    auto const c = hn::LoadU(d, src + i + 2 * n);
    auto const e = hn::LoadU(d, src + i + 3 * n);
    if constexpr (kStreams) {
      hn::Stream(a, d, dst + i);
      hn::Stream(b, d, dst + i + n);
      hn::Stream(c, d, dst + i + 2 * n);
      hn::Stream(e, d, dst + i + 3 * n);
    } else {
      hn::StoreU(a, d, dst + i);
      hn::StoreU(b, d, dst + i + n);
      hn::StoreU(c, d, dst + i + 2 * n);
      hn::StoreU(e, d, dst + i + 3 * n);
    }
  }
  std::memcpy(dst + i, src + i, bytes - i);
}

void copy_streaming(std::uint8_t* dst, std::uint8_t const* src, std::size_t bytes) {
  std::size_t const misaligned = reinterpret_cast<std::uintptr_t>(dst) % kLineBytes;
  std::size_t const head = std::min(bytes, (kLineBytes - misaligned) % kLineBytes);
  std::memcpy(dst, src, head);
  copy_from<true>(head, dst, src, bytes);
}

/// Copies line by line, and takes each line right after reading it: before the read a take would wait for the line, and
/// later the line would be further away. Returns how many bytes it copied.
std::size_t copy_and_take_lines(std::uint8_t* dst, std::uint8_t const* src, std::size_t bytes) {
  hn::CappedTag<std::uint8_t, kLineBytes / 2> const d;
  std::size_t const n = hn::Lanes(d);
  auto const* const word = whole_word(src);
  std::size_t i = 0;
  for (; i + kLineBytes <= bytes; i += kLineBytes) {
    for (std::size_t v = 0; v < kLineBytes; v += 2 * n) {
      auto const a = hn::LoadU(d, src + i + v);
      auto const b = hn::LoadU(d, src + i + v + n);
      hn::StoreU(a, d, dst + i + v);
      hn::StoreU(b, d, dst + i + v + n);
    }
    store_again(word + i);
  }
  return i;
}

void copy_by_vectors(std::uint8_t* dst, std::uint8_t const* src, std::size_t bytes) {
  copy_from<false>(0, dst, src, bytes);
}

void zero_streaming(std::uint8_t* dst, std::size_t bytes) {
  hn::ScalableTag<std::uint8_t> const d;
  std::size_t const n = hn::Lanes(d);
  auto const zeros = hn::Zero(d);
  std::size_t const misaligned = reinterpret_cast<std::uintptr_t>(dst) % kLineBytes;
  std::size_t i = std::min(bytes, (kLineBytes - misaligned) % kLineBytes);
  std::memset(dst, 0, i);
  for (; i + n <= bytes; i += n) hn::Stream(zeros, d, dst + i);
  std::memset(dst + i, 0, bytes - i);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(copy_by_vectors);
HWY_EXPORT(copy_and_take_lines);
HWY_EXPORT(copy_streaming);
HWY_EXPORT(zero_streaming);

namespace {

// Sanitizers see only what memcpy() writes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_SANITIZED
#endif
#endif

#if defined(__x86_64__) && !defined(WEFT_SANITIZED)
bool has_fast_string_moves() noexcept {
  static bool const has = [] {
    constexpr unsigned kErms = 1U << 9U;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kErms) != 0;
  }();
  return has;
}

/// Copies with string moves, which memcpy() uses only up to some size. Whole lines only: other bytes gain nothing, and
/// some processors move to a misaligned destination byte by byte.
bool copy_to_peer(void* dst, void const* src, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kWorthwhile = 2048;  // string moves take some 30 ns to begin
  if (bytes < kWorthwhile || !has_fast_string_moves()) return false;
  auto const head = (kLine - reinterpret_cast<std::uintptr_t>(dst) % kLine) % kLine;
  auto lines = (bytes - head) / kLine * kLine;
  auto const tail = bytes - head - lines;
  std::memcpy(dst, src, head);
  void* to = static_cast<std::byte*>(dst) + head;
  void const* from = static_cast<std::byte const*>(src) + head;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(lines) : : "memory");
  std::memcpy(to, from, tail);
  return true;
}
#else
bool copy_to_peer(void*, void const*, std::size_t) noexcept {
  return false;
}
#endif

/// On Zen 3, string moves run at 2 to 3 GB/s instead of 30 to 90 if the destination's offset in its page is a few bytes
/// larger than the source's. This happens from a page of a ring to a std::vector, whose long buffers begin 16 bytes
/// into a page. glibc's memcpy before 2.39 uses string moves as well.
bool are_slow_to_move(void const* dst, void const* src, std::size_t bytes) noexcept {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kLeast = 1024;  // below glibc's string moves
  auto const behind = (reinterpret_cast<std::uintptr_t>(dst) - reinterpret_cast<std::uintptr_t>(src)) % kPage;
  return bytes >= kLeast && behind > 0 && behind < kLine;
}

}  // namespace

void copy_long(void* dst, void const* src, std::size_t bytes, Store store) {
  if (bytes == 0) return;
  auto* const to = static_cast<std::uint8_t*>(dst);
  auto const* const from = static_cast<std::uint8_t const*>(src);
  if (!is_past_caches(store)) {
    if (are_slow_to_move(dst, src, bytes)) return HWY_DYNAMIC_DISPATCH(copy_by_vectors)(to, from, bytes);
    if (store != Store::to_peer || !copy_to_peer(dst, src, bytes)) std::memcpy(dst, src, bytes);
    return;
  }
  HWY_DYNAMIC_DISPATCH(copy_streaming)(to, from, bytes);
  if (store == Store::streaming) fence();
}

void copy_and_take(void* dst, void const* src, std::size_t bytes) {
  if (bytes == 0) return;
  auto* const to = static_cast<std::uint8_t*>(dst);
  auto const* const from = static_cast<std::uint8_t const*>(src);
  auto const done = HWY_DYNAMIC_DISPATCH(copy_and_take_lines)(to, from, bytes);
  take(from + done, bytes - done);
  std::memcpy(to + done, from + done, bytes - done);
}

void take(void const* data, std::size_t bytes) noexcept {
  auto const* const first = static_cast<std::uint8_t const*>(data);
  for (auto const* word = whole_word(first); word + kWordBytes <= first + bytes; word += kLineBytes) store_again(word);
}

void fence() noexcept {
  hwy::FlushStream();
}

void zero(void* dst, std::size_t bytes, Store store) {
  if (bytes == 0) return;
  if (!is_past_caches(store)) {
    std::memset(dst, 0, bytes);
    return;
  }
  HWY_DYNAMIC_DISPATCH(zero_streaming)(static_cast<std::uint8_t*>(dst), bytes);
  if (store == Store::streaming) fence();
}

}  // namespace weft::kernels
#endif
