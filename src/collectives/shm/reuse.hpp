#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::shm {

/// How much is written between two results in one buffer. It tells whether a result will still lie in the caches when
/// its buffer is used again. A loop over one buffer finds it there; the gradients of a training step, each of which
/// could stay by itself, push one another out. Only results that it is asked about count, so what it knows is a lower
/// bound. For one rank's calls; one thread at a time. Neither allocates nor fails.
class Reuse {
 public:
  /// Notes a result of `bytes` in `buffer`. Returns the bytes of results from the last one in `buffer`, itself
  /// included, up to this one; or `bytes` where that is more, or where the last one is not known. Of two buffers that
  /// share an entry only the later one is known.
  std::size_t distance(void const* buffer, std::size_t bytes) noexcept {
    auto& last = last_[entry_of(buffer)];
    auto const since = buffer != nullptr && last.buffer == buffer ? written_ - last.written : 0;
    last = {buffer, written_};
    written_ += bytes;
    return since > bytes ? static_cast<std::size_t>(since) : bytes;
  }

 private:
  static constexpr std::size_t kEntries = 1024;  // more than the tensors of most models' steps

  struct Result {
    void const* buffer = nullptr;
    std::uint64_t written = 0;  ///< bytes before it
  };

  /// Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
  [[nodiscard]] static std::size_t entry_of(void const* buffer) noexcept {
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
    constexpr unsigned kShift = 54;
    static_assert(kEntries == std::size_t{1} << (64 - kShift));
    return (reinterpret_cast<std::uintptr_t>(buffer) * kGolden) >> kShift;
  }

  std::uint64_t written_ = 0;
  std::array<Result, kEntries> last_{};
};

}  // namespace weft::shm
