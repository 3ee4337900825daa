#pragma once

#include <cstddef>
#include <span>

#include "kernels/cpu/short_copy.hpp"
#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"
#include "weft/reduction.hpp"

namespace weft::kernels {

/// Where results go.
enum class Store {
  cached,     ///< the caches of this core
  streaming,  ///< past the caches
  unfenced,   ///< past the caches; fence() before another thread may read it: for many short results, which would each
              ///< wait
  to_peer,    ///< lines that another core has read and will read again: without fetching what is overwritten
};

[[nodiscard]] constexpr bool is_past_caches(Store store) noexcept {
  return store == Store::streaming || store == Store::unfenced;
}

/// What one pass takes well; more make it wander between more pages than a processor follows.
inline constexpr std::size_t kFewSources = 64;

/// How sources combine.
struct Reducer {
  ReduceOp op = ReduceOp::sum;
  double const* scales = nullptr;  ///< premul_sum: each source's
  UserFunction user{};             ///< user; its element_bytes, unless 0, is the size of what is counted

  Reducer(ReduceOp of) noexcept : op(of) {}  // NOLINT(google-explicit-constructor): enough for most operators
  Reducer(ReduceOp of, double const* by, UserFunction const& function) noexcept : op(of), scales(by), user(function) {}
};

/// dst_k[i] = op over r of src_r[i], for every destination k and i in [0, count); sources combine in the order given,
/// each element is loaded once per source and stored once per destination; `store` is not to_peer. A
/// destination may equal a source (same start), else they do not overlap. Any alignment; streaming stores are fenced
/// before it returns. Thread-safe. One source or more; allocates for a premul_sum of more than kFewSources alone.
/// supports(dtype, op).
///
/// - 8-bit and 16-bit floats accumulate in f32 and round once, to nearest even. Integers wrap.
/// - avg is the sum divided by srcs.size(), in the accumulating type: floats round to nearest, integers truncate toward
/// zero.
/// - premul_sum rounds scales to the accumulating type, then every product and every sum, never both at once.
/// - min and max of floats: NaN if any contribution is NaN; of values that compare equal (+0, −0) the earlier source's.
/// - Logical results, and all of boolean, are 0 or 1, of a single source too.
/// - Same bits for any split of [0, count), alignment and kind of store; only which NaN a NaN is remains unspecified.
[[gnu::hot]] void reduce(std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count,
                         DataType dtype, Reducer const& how, Store store = Store::cached);

/// The same of several ranges of `count` elements: `dsts` and `srcs` hold those of the first range, then as many of the
/// second, and so on; what one range writes is in no other. Several at a time are read in turns, as a long range's
/// pages are: for ranges too short for that.
void reduce_alike(std::size_t ranges, std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count,
                  DataType dtype, Reducer const& how, Store store = Store::cached);

/// copy() of more than kShortBytes, or past the caches.
void copy_long(void* dst, void const* src, std::size_t bytes, Store store);

/// memcpy, or the same past the caches, or by vectors where string moves would be slow. `dst` and `src` do not overlap.
/// To a peer, whole lines are taken over without their contents where the processor has fast string moves: vector
/// stores wait for each.
inline void copy(void* dst, void const* src, std::size_t bytes, Store store = Store::cached) {
  bytes <= kShortBytes && !is_past_caches(store) ? copy_short(dst, src, bytes) : copy_long(dst, src, bytes, store);
}

/// copy() out of memory that another core has written and will write again, and take() of what it reads.
void copy_and_take(void* dst, void const* src, std::size_t bytes);

/// Makes lines that were read this core's own, as a store would that changes nothing: their words are stored as they
/// were found, and nobody else may write them meanwhile. Where caches keep a line's dirty copy with the core that wrote
/// it while others read it (the owned state of MOESI: Sweazey and Smith, "A class of compatible cache consistency
/// protocols", ISCA 1986; AMD64 Architecture Programmer's Manual, volume 2, 7.3), that core waits long to write such a
/// line again, and not at all long for one that another core has taken. Nothing on processors other than x86-64.
void take(void const* data, std::size_t bytes) noexcept;

/// Orders what was stored unfenced before what this thread stores next.
void fence() noexcept;

/// memset to zero, or the same past the caches.
void zero(void* dst, std::size_t bytes, Store store);

}  // namespace weft::kernels
