#pragma once

namespace weft::test {

/// Whether tests are compiled with sanitizers: instrumented code is up to 15 times slower, and tests must still end.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitizer;
#endif

/// How much of something to do: `usual`, or `sanitized` in instrumented code.
template <typename T>
[[nodiscard]] constexpr T unless_sanitized(T usual, T sanitized) {
  return kSanitized ? sanitized : usual;
}

}  // namespace weft::test
