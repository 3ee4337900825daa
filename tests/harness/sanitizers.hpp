#pragma once

namespace weft::test {

/// Instrumented code is up to 15 times slower, and tests have to end all the same.
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

/// How much of something is done: `usual`, or less of it in instrumented code.
template <typename T>
[[nodiscard]] constexpr T unless_sanitized(T usual, T sanitized) {
  return kSanitized ? sanitized : usual;
}

}  // namespace weft::test
