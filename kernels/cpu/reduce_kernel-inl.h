// The loops of reduce(); included once per SIMD target.
#if defined(WEFT_KERNELS_CPU_REDUCE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_REDUCE_KERNEL_INL_H_
#undef WEFT_KERNELS_CPU_REDUCE_KERNEL_INL_H_
#else
#define WEFT_KERNELS_CPU_REDUCE_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/operations-inl.h"
#include "kernels/cpu/reduce_task.hpp"
#include "kernels/cpu/short_copy.hpp"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

/// Vectors reduced together: enough independent chains to cover an addition's latency, few enough to stay in registers.
constexpr std::size_t kBlockVectors = 4;
constexpr std::size_t kPageBytes = 4096;

template <typename T>
HWY_INLINE T const* at(void const* base, std::size_t index) {
  return reinterpret_cast<T const*>(static_cast<char const*>(base) + index * sizeof(T));
}
template <typename T>
HWY_INLINE T* at(void* base, std::size_t index) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + index * sizeof(T));
}

/// How much code a kernel is worth, given that every instance costs compile time.
enum class Effort {
  lean,   ///< one loop, by vectors
  tuned,  ///< blocks, prefetching pages, streaming stores
};

template <typename Element>
constexpr bool kLoadsSomeOf = requires {
  requires Element::kLoadsSome;
};

/// One kernel per element type and operation. kSources and kDestinations: their numbers if known, or 0 for any number.
template <typename Element, template <typename> typename Operation, Effort kEffort, std::size_t kSources,
          std::size_t kDestinations>
class Kernel {
  using T = typename Element::Stored;
  using D = typename Element::D;
  using V = typename Element::V;

 public:
  explicit Kernel(ReduceTask const& task)
      : dsts_(task.dsts.data()),
        srcs_(task.srcs.data()),
        n_dsts_(task.dsts.size()),
        n_srcs_(task.srcs.size()),
        operation_(task) {}

  void run(std::size_t ranges, std::size_t count, bool streaming) const {
    std::size_t first = 0;
    if constexpr (kEffort == Effort::tuned) {
      auto const together = pages_in_turns();
      for (std::size_t k = 0; ranges > 1 && !streaming && k < ranges; k += together)
        first = blocks_in_turns(k, std::min(together, ranges - k), count);
    }
    for (std::size_t k = 0; k < ranges; ++k) run_from(first, range(k), count, streaming);
  }

 private:
  /// The destinations and sources of one range.
  struct Range {
    void* const* dsts;
    void const* const* srcs;
  };
  HWY_INLINE Range range(std::size_t k) const { return {dsts_ + k * destinations(), srcs_ + k * sources()}; }

  HWY_INLINE void run_from(std::size_t i, Range range, std::size_t count, bool streaming) const {
    if constexpr (kEffort == Effort::tuned) i = i == 0 ? blocks(range, count, streaming) : i;
    for (; i + lanes() <= count; i += lanes()) vector(range, i);
    if (i < count) partial(range, i, count - i);
  }

  /// Reduces all whole blocks of these ranges, in turns. Returns the element at which it stopped.
  std::size_t blocks_in_turns(std::size_t first, std::size_t ranges, std::size_t count) const {
    std::size_t const whole = count - count % (kBlockVectors * lanes());
    for (std::size_t i = 0; i < whole; i += kBlockVectors * lanes()) {
      for (std::size_t k = first; k < first + ranges; ++k) block<false>(range(k), i);
    }
    return whole;
  }

  /// Reduces all whole blocks, and what comes before the first. Returns the element at which it stopped.
  HWY_INLINE std::size_t blocks(Range range, std::size_t count, bool streaming) const {
    std::size_t i = 0;
    if (streaming) {
      std::size_t const head = elements_to_alignment(range);
      if (head <= count) {
        for (; i < head; i += std::min(lanes(), head - i)) partial(range, i, std::min(lanes(), head - i));
        i = head;
        for (; i + kBlockVectors * lanes() <= count; i += kBlockVectors * lanes()) block<true>(range, i);
      }
    }
    // Several pages at a time: hardware prefetchers stop at page ends, and follow several streams better than one.
    std::size_t const page = kPageBytes / sizeof(T);
    std::size_t const pages = pages_in_turns();
    for (; i + pages * page <= count; i += pages * page) {
      for (std::size_t j = i; j < i + page; j += kBlockVectors * lanes()) {
        for (std::size_t k = 0; k < pages; ++k) block<false>(range, j + k * page);
      }
    }
    for (; i + kBlockVectors * lanes() <= count; i += kBlockVectors * lanes()) block<false>(range, i);
    return i;
  }

  static HWY_INLINE std::size_t lanes() { return hn::Lanes(D()); }
  HWY_INLINE std::size_t sources() const { return kSources != 0 ? kSources : n_srcs_; }
  HWY_INLINE std::size_t destinations() const { return kDestinations != 0 ? kDestinations : n_dsts_; }
  /// Pages of every source to read in turns.
  HWY_INLINE std::size_t pages_in_turns() const { return std::max<std::size_t>(1, pages_at_once() / sources()); }

  /// Elements until every destination is aligned for streaming stores; SIZE_MAX if they never are at the same time.
  std::size_t elements_to_alignment(Range range) const {
    std::size_t const alignment = std::max<std::size_t>(64, lanes() * sizeof(T));
    auto const offset = reinterpret_cast<std::uintptr_t>(range.dsts[0]) % alignment;
    for (std::size_t k = 1; k < destinations(); ++k) {
      if (reinterpret_cast<std::uintptr_t>(range.dsts[k]) % alignment != offset) return SIZE_MAX;
    }
    if (offset % sizeof(T) != 0) return SIZE_MAX;
    return (alignment - offset) % alignment / sizeof(T);
  }

  template <bool kStream>
  HWY_INLINE void block(Range range, std::size_t i) const {
    std::size_t const n = lanes();
    V a = operation_.begin(Element::load(at<T>(range.srcs[0], i)));
    V b = operation_.begin(Element::load(at<T>(range.srcs[0], i + n)));
    V c = operation_.begin(Element::load(at<T>(range.srcs[0], i + 2 * n)));
    V d = operation_.begin(Element::load(at<T>(range.srcs[0], i + 3 * n)));
    for (std::size_t r = 1; r < sources(); ++r) {
      a = operation_.combine(a, Element::load(at<T>(range.srcs[r], i)), r);
      b = operation_.combine(b, Element::load(at<T>(range.srcs[r], i + n)), r);
      c = operation_.combine(c, Element::load(at<T>(range.srcs[r], i + 2 * n)), r);
      d = operation_.combine(d, Element::load(at<T>(range.srcs[r], i + 3 * n)), r);
    }
    a = operation_.finish(a);
    b = operation_.finish(b);
    c = operation_.finish(c);
    d = operation_.finish(d);
    for (std::size_t k = 0; k < destinations(); ++k) {
      put<kStream>(a, at<T>(range.dsts[k], i));
      put<kStream>(b, at<T>(range.dsts[k], i + n));
      put<kStream>(c, at<T>(range.dsts[k], i + 2 * n));
      put<kStream>(d, at<T>(range.dsts[k], i + 3 * n));
    }
  }

  template <bool kStream>
  static HWY_INLINE void put(V value, T* to) {
    if constexpr (kStream) {
      Element::stream(value, to);
    } else {
      Element::store(value, to);
    }
  }

  HWY_INLINE void vector(Range range, std::size_t i) const {
    V a = operation_.begin(Element::load(at<T>(range.srcs[0], i)));
    for (std::size_t r = 1; r < sources(); ++r) a = operation_.combine(a, Element::load(at<T>(range.srcs[r], i)), r);
    a = operation_.finish(a);
    for (std::size_t k = 0; k < destinations(); ++k) Element::store(a, at<T>(range.dsts[k], i));
  }

  /// Room for a vector, and for the most that copy_short() copies.
  struct alignas(64) Line {
    T lanes[std::max<std::size_t>(hn::MaxLanes(D()), kShortBytes / sizeof(T))];
  };

  static HWY_INLINE void copy_some(T* to, T const* from, std::size_t count) {
    if constexpr (sizeof(Line) <= kShortBytes) {
      copy_short(to, from, count * sizeof(T));
    } else {
      std::memcpy(to, from, count * sizeof(T));
    }
  }

  /// Loads the first `count` lanes; the others are zero.
  static HWY_INLINE V load_some(T const* from, std::size_t count) {
    if constexpr (kLoadsSomeOf<Element>) {
      return Element::load_some(from, count);
    } else {
      Line line{};
      copy_some(line.lanes, from, count);
      return Element::load(line.lanes);
    }
  }

  /// Reduces fewer elements than a vector has lanes, with the same arithmetic, so that bits do not depend on where a
  /// range is split.
  void partial(Range range, std::size_t i, std::size_t count) const {
    V a = operation_.begin(load_some(at<T>(range.srcs[0], i), count));
    for (std::size_t r = 1; r < sources(); ++r) a = operation_.combine(a, load_some(at<T>(range.srcs[r], i), count), r);
    Line line{};
    Element::store(operation_.finish(a), line.lanes);
    for (std::size_t k = 0; k < destinations(); ++k) copy_some(at<T>(range.dsts[k], i), line.lanes, count);
  }

  void* const* dsts_;
  void const* const* srcs_;
  std::size_t n_dsts_;
  std::size_t n_srcs_;
  Operation<D> operation_;
};

/// Any numbers of sources and destinations.
template <typename Element, template <typename> typename Operation, Effort kEffort = Effort::lean>
void run_any(ReduceTask const& task) {
  Kernel<Element, Operation, kEffort, 0, 0>(task).run(task.ranges, task.count, task.streaming);
}

/// Two sources are the case of two local ranks, which is frequent enough for loops without inner loops.
template <typename Element, template <typename> typename Operation>
void run_pairs(ReduceTask const& task) {
  if (task.srcs.size() == 2 && task.dsts.size() == 1)
    return Kernel<Element, Operation, Effort::tuned, 2, 1>(task).run(task.ranges, task.count, task.streaming);
  if (task.srcs.size() == 2 && task.dsts.size() == 2)
    return Kernel<Element, Operation, Effort::tuned, 2, 2>(task).run(task.ranges, task.count, task.streaming);
  run_any<Element, Operation, Effort::tuned>(task);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
