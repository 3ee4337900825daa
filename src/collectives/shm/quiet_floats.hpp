#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace weft::shm {

/// While it lives, this thread's floating-point arithmetic neither traps nor leaves a trace in its status flags: for
/// whole vectors of which only some lanes are operands.
class QuietFloats {
#if defined(__SSE__)
 public:
  QuietFloats() noexcept : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kMasks);
  }
  ~QuietFloats() {
    _mm_setcsr(before_);
  }

 private:
  static constexpr unsigned kMasks = 0x1f80;
  unsigned before_;
#else
 public:
  QuietFloats() noexcept {
    std::feholdexcept(&before_);
  }
  ~QuietFloats() {
    std::fesetenv(&before_);
  }

 private:
  std::fenv_t before_;
#endif

 public:
  QuietFloats(QuietFloats const&) = delete;
  QuietFloats& operator=(QuietFloats const&) = delete;
};

}  // namespace weft::shm
