#include "kernels/cpu/reduce.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

using Destinations = std::span<void* const>;
using Sources = std::span<void const* const>;

/// Vectors reduced together: enough independent chains to cover an addition's latency, few enough to stay in registers.
constexpr std::size_t kBlockVectors = 4;
constexpr std::size_t kPageBytes = 4096;
/// Pages read at once, of all sources together; prefetchers of current processors follow 16 to 32 streams.
constexpr std::size_t kReadStreams = 16;

template <typename T>
HWY_INLINE T const* at(void const* base, std::size_t index) {
  return reinterpret_cast<T const*>(static_cast<char const*>(base) + index * sizeof(T));
}
template <typename T>
HWY_INLINE T* at(void* base, std::size_t index) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + index * sizeof(T));
}

/// One kernel per element type and operation. kSources, kDestinations: known numbers, or 0 for any.
template <typename Element, template <typename> typename Operation, std::size_t kSources, std::size_t kDestinations>
class Kernel {
  using T = typename Element::Stored;
  using D = typename Element::D;
  using V = typename Element::V;

 public:
  Kernel(Destinations dsts, Sources srcs)
      : dsts_(dsts.data()), srcs_(srcs.data()), n_dsts_(dsts.size()), n_srcs_(srcs.size()), operation_(srcs.size()) {}

  void run(std::size_t count, bool streaming) const {
    std::size_t i = 0;
    if (streaming) {
      std::size_t const head = elements_to_alignment();
      if (head <= count) {
        for (; i < head; i += std::min(lanes(), head - i)) partial(i, std::min(lanes(), head - i));
        i = head;
        for (; i + kBlockVectors * lanes() <= count; i += kBlockVectors * lanes()) block<true>(i);
        hwy::FlushStream();
      }
    }
    // Several pages at a time: hardware prefetchers stop at page ends, and follow several streams better than one.
    std::size_t const page = kPageBytes / sizeof(T);
    std::size_t const pages = std::max<std::size_t>(1, kReadStreams / sources());
    for (; i + pages * page <= count; i += pages * page) {
      for (std::size_t j = i; j < i + page; j += kBlockVectors * lanes()) {
        for (std::size_t k = 0; k < pages; ++k) block<false>(j + k * page);
      }
    }
    for (; i + kBlockVectors * lanes() <= count; i += kBlockVectors * lanes()) block<false>(i);
    for (; i + lanes() <= count; i += lanes()) vector(i);
    if (i < count) partial(i, count - i);
  }

 private:
  static HWY_INLINE std::size_t lanes() { return hn::Lanes(D()); }
  HWY_INLINE std::size_t sources() const { return kSources != 0 ? kSources : n_srcs_; }
  HWY_INLINE std::size_t destinations() const { return kDestinations != 0 ? kDestinations : n_dsts_; }

  /// Elements before every destination is aligned for streaming stores; SIZE_MAX when they are never aligned together.
  std::size_t elements_to_alignment() const {
    std::size_t const alignment = std::max<std::size_t>(64, lanes() * sizeof(T));
    auto const offset = reinterpret_cast<std::uintptr_t>(dsts_[0]) % alignment;
    for (std::size_t k = 1; k < destinations(); ++k) {
      if (reinterpret_cast<std::uintptr_t>(dsts_[k]) % alignment != offset) return SIZE_MAX;
    }
    if (offset % sizeof(T) != 0) return SIZE_MAX;
    return (alignment - offset) % alignment / sizeof(T);
  }

  template <bool kStream>
  HWY_INLINE void block(std::size_t i) const {
    std::size_t const n = lanes();
    V a = Element::load(at<T>(srcs_[0], i));
    V b = Element::load(at<T>(srcs_[0], i + n));
    V c = Element::load(at<T>(srcs_[0], i + 2 * n));
    V d = Element::load(at<T>(srcs_[0], i + 3 * n));
    for (std::size_t r = 1; r < sources(); ++r) {
      a = operation_.combine(a, Element::load(at<T>(srcs_[r], i)));
      b = operation_.combine(b, Element::load(at<T>(srcs_[r], i + n)));
      c = operation_.combine(c, Element::load(at<T>(srcs_[r], i + 2 * n)));
      d = operation_.combine(d, Element::load(at<T>(srcs_[r], i + 3 * n)));
    }
    a = operation_.finish(a);
    b = operation_.finish(b);
    c = operation_.finish(c);
    d = operation_.finish(d);
    for (std::size_t k = 0; k < destinations(); ++k) {
      put<kStream>(a, at<T>(dsts_[k], i));
      put<kStream>(b, at<T>(dsts_[k], i + n));
      put<kStream>(c, at<T>(dsts_[k], i + 2 * n));
      put<kStream>(d, at<T>(dsts_[k], i + 3 * n));
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

  HWY_INLINE void vector(std::size_t i) const {
    V a = Element::load(at<T>(srcs_[0], i));
    for (std::size_t r = 1; r < sources(); ++r) a = operation_.combine(a, Element::load(at<T>(srcs_[r], i)));
    a = operation_.finish(a);
    for (std::size_t k = 0; k < destinations(); ++k) Element::store(a, at<T>(dsts_[k], i));
  }

  /// Fewer elements than a vector has lanes, through the same arithmetic, so that bits cannot depend on where a range
  /// is split.
  void partial(std::size_t i, std::size_t count) const {
    HWY_ALIGN T lanes_of[hn::MaxLanes(D())] = {};
    std::size_t const bytes = count * sizeof(T);
    std::memcpy(lanes_of, at<T>(srcs_[0], i), bytes);
    V a = Element::load(lanes_of);
    for (std::size_t r = 1; r < sources(); ++r) {
      std::memcpy(lanes_of, at<T>(srcs_[r], i), bytes);
      a = operation_.combine(a, Element::load(lanes_of));
    }
    Element::store(operation_.finish(a), lanes_of);
    for (std::size_t k = 0; k < destinations(); ++k) std::memcpy(at<T>(dsts_[k], i), lanes_of, bytes);
  }

  void* const* dsts_;
  void const* const* srcs_;
  std::size_t n_dsts_;
  std::size_t n_srcs_;
  Operation<D> operation_;
};

template <typename Element, template <typename> typename Operation>
void reduce_any(Destinations dsts, Sources srcs, std::size_t count, bool streaming) {
  // What two local ranks do all day: worth loops without inner loops.
  if constexpr (std::is_floating_point_v<typename Element::Lane> && !std::is_same_v<typename Element::Lane, double>) {
    if (srcs.size() == 2 && dsts.size() == 1) return Kernel<Element, Operation, 2, 1>(dsts, srcs).run(count, streaming);
    if (srcs.size() == 2 && dsts.size() == 2) return Kernel<Element, Operation, 2, 2>(dsts, srcs).run(count, streaming);
  }
  Kernel<Element, Operation, 0, 0>(dsts, srcs).run(count, streaming);
}

template <typename Element>
void reduce_elements(Destinations dsts, Sources srcs, std::size_t count, ReduceOp op, bool streaming) {
  switch (op) {
    case ReduceOp::sum: return reduce_any<Element, Sum>(dsts, srcs, count, streaming);
    case ReduceOp::avg: return reduce_any<Element, Average>(dsts, srcs, count, streaming);
    case ReduceOp::prod: return reduce_any<Element, Product>(dsts, srcs, count, streaming);
    case ReduceOp::min: return reduce_any<Element, Min>(dsts, srcs, count, streaming);
    case ReduceOp::max: return reduce_any<Element, Max>(dsts, srcs, count, streaming);
  }
}

void reduce_kernel(Destinations dsts, Sources srcs, std::size_t count, DataType dtype, ReduceOp op, bool streaming) {
  switch (dtype) {
    case DataType::i8: return reduce_elements<Plain<std::int8_t>>(dsts, srcs, count, op, streaming);
    case DataType::u8: return reduce_elements<Plain<std::uint8_t>>(dsts, srcs, count, op, streaming);
    case DataType::i32: return reduce_elements<Plain<std::int32_t>>(dsts, srcs, count, op, streaming);
    case DataType::u32: return reduce_elements<Plain<std::uint32_t>>(dsts, srcs, count, op, streaming);
    case DataType::i64: return reduce_elements<Plain<std::int64_t>>(dsts, srcs, count, op, streaming);
    case DataType::u64: return reduce_elements<Plain<std::uint64_t>>(dsts, srcs, count, op, streaming);
    case DataType::f16: return reduce_elements<Narrow<HalfCodec>>(dsts, srcs, count, op, streaming);
    case DataType::bf16: return reduce_elements<Narrow<BFloat16Codec>>(dsts, srcs, count, op, streaming);
    case DataType::f32: return reduce_elements<Plain<float>>(dsts, srcs, count, op, streaming);
    case DataType::f64: return reduce_elements<Plain<double>>(dsts, srcs, count, op, streaming);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(reduce_kernel);

void reduce(std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count, DataType dtype,
            ReduceOp op, Store store) {
  if (count == 0 || dsts.empty()) return;
  if (srcs.size() == 1) {
    for (void* dst : dsts) {
      if (dst != srcs[0]) copy(dst, srcs[0], count * size_of(dtype), store);
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(reduce_kernel)(dsts, srcs, count, dtype, op, store == Store::streaming);
}

}  // namespace weft::kernels
#endif
