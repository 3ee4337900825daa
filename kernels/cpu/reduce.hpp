#pragma once

#include <cstddef>
#include <span>

#include "kernels/cpu/short_copy.hpp"
#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"
#include "weft/reduction.hpp"

namespace weft::kernels {

/// How results are stored.
enum class Store {
  cached,     ///< into the caches of this core
  streaming,  ///< past the caches
  unfenced,   ///< past the caches, without a fence: call fence() before another thread may read it. For many short
              ///< results, which would each wait
  to_peer,    ///< into lines that another core has read and will read again, without fetching their old contents
};

[[nodiscard]] constexpr bool is_past_caches(Store store) noexcept {
  return store == Store::streaming || store == Store::unfenced;
}

/// The most sources that one pass handles well: with more, it alternates between more pages than a processor follows.
inline constexpr std::size_t kFewSources = 64;

/// How sources combine.
struct Reducer {
  ReduceOp op = ReduceOp::sum;
  double const* scales = nullptr;  ///< for premul_sum: one scale per source
  UserFunction user{};             ///< for ReduceOp::user; unless 0, its element_bytes is the size of a counted element

  Reducer(ReduceOp of) noexcept : op(of) {}  // NOLINT(google-explicit-constructor): enough for most operators
  Reducer(ReduceOp of, double const* by, UserFunction const& function) noexcept : op(of), scales(by), user(function) {}
};

/// dst_k[i] = op over r of src_r[i], for every destination k and i in [0, count). There are one or more sources, which
/// combine in the order given; each element is loaded once per source and stored once per destination. A destination
/// may equal a source (same start); otherwise they must not overlap. Any alignment. `store` must not be to_peer;
/// streaming stores are fenced before it returns. Thread-safe. Allocates only for a premul_sum of more than kFewSources
/// sources. Requires supports(dtype, op).
///
/// - 8-bit and 16-bit floats accumulate in f32 and round once, to nearest even. Integers wrap.
/// - avg is the sum divided by srcs.size(), in the accumulating type: floats round to nearest, integers truncate toward
/// zero.
/// - premul_sum rounds scales to the accumulating type, then every product and every sum, never both at once.
/// - min and max of floats: NaN if any contribution is NaN; if values compare equal (+0, −0), the earlier source's.
/// - Logical results, and all boolean results, are 0 or 1, even for a single source.
/// - The bits are the same for any split of [0, count), alignment and kind of store, except for the bits of a NaN.
[[gnu::hot]] void reduce(std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count,
                         DataType dtype, Reducer const& how, Store store = Store::cached);

/// The same for several ranges of `count` elements: `dsts` and `srcs` hold the pointers of the first range, then as
/// many of the second, and so on; no range writes into another. Several ranges are read in turns, as the pages of a
/// long range are, so this suits ranges too short for turns of their own.
void reduce_alike(std::size_t ranges, std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count,
                  DataType dtype, Reducer const& how, Store store = Store::cached);

/// copy() of more than kShortBytes, or past the caches.
void copy_long(void* dst, void const* src, std::size_t bytes, Store store);

/// As memcpy, but also past the caches, and by vectors where string moves would be slow. `dst` and `src` must not
/// overlap. With Store::to_peer, if the processor has fast string moves, whole lines are taken over without fetching
/// their old contents; vector stores would wait for each line.
inline void copy(void* dst, void const* src, std::size_t bytes, Store store = Store::cached) {
  bytes <= kShortBytes && !is_past_caches(store) ? copy_short(dst, src, bytes) : copy_long(dst, src, bytes, store);
}

/// Copies from memory that another core has written and will write again, and calls take() for what it reads.
void copy_and_take(void* dst, void const* src, std::size_t bytes);

/// Makes lines that this core has read its own, by storing words in them unchanged; no other thread may write them
/// meanwhile. Some caches keep a line's dirty copy with the core that wrote it while others read it (the owned state of
/// MOESI: Sweazey and Smith, "A class of compatible cache consistency protocols", ISCA 1986; AMD64 Architecture
/// Programmer's Manual, volume 2, 7.3). There, the writing core waits long to write such a line again, but not for one
/// that another core has taken. Does nothing on processors other than x86-64.
void take(void const* data, std::size_t bytes) noexcept;

/// Orders unfenced stores before this thread's later stores.
void fence() noexcept;

/// Sets memory to zero, optionally past the caches.
void zero(void* dst, std::size_t bytes, Store store);

}  // namespace weft::kernels
