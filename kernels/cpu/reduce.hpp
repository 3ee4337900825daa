#pragma once

#include <cstddef>
#include <span>

#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft::kernels {

/// Whether results should stay in the caches or bypass them.
enum class Store { cached, streaming };

/// dst_k[i] = op over r of src_r[i], for every destination k and i in [0, count); sources combine in the order given,
/// each element is loaded once per source and stored once per destination. A destination may equal a source (same
/// start), else they do not overlap. Any alignment; streaming stores are fenced before it returns. Thread-safe, does
/// not allocate. 1 to 64 sources.
///
/// - f16 and bf16 accumulate in f32 and round once, to nearest even. Integers wrap.
/// - avg is the sum divided by srcs.size(), in the accumulating type: floats round to nearest, integers truncate toward
/// zero.
/// - min and max of floats: NaN if any contribution is NaN; of values that compare equal (+0, −0) the earlier source's.
/// - Same bits for any split of [0, count), alignment and kind of store; only which NaN a NaN is remains unspecified.
void reduce(std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count, DataType dtype,
            ReduceOp op, Store store = Store::cached);

/// memcpy, or the same with streaming stores (fenced). `dst` and `src` do not overlap.
void copy(void* dst, void const* src, std::size_t bytes, Store store = Store::cached);

}  // namespace weft::kernels
