#include "kernels/cpu/reduce_task.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce_integers.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/cpu/reduce_kernel-inl.h"
#include "kernels/cpu/short_reduction-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

/// Operations whose result bits are the same for signed and unsigned integers.
template <typename T>
void reduce_unsigned(ReduceTask const& task) {
  using Element = Plain<T>;
  switch (task.how.op) {
    case ReduceOp::sum: return run_any<Element, Sum, Effort::tuned>(task);
    case ReduceOp::prod: return run_any<Element, Product>(task);
    case ReduceOp::premul_sum: return run_any<Element, ScaledSum>(task);
    case ReduceOp::land: return run_any<Element, LogicalAnd>(task);
    case ReduceOp::lor: return run_any<Element, LogicalOr>(task);
    case ReduceOp::lxor: return run_any<Element, LogicalXor>(task);
    default: return;  // supports() no other
  }
}

template <typename T>
void reduce_elements(ReduceTask const& task) {
  constexpr Effort kEffort = sizeof(T) >= 4 && std::is_signed_v<T> ? Effort::tuned : Effort::lean;
  switch (task.how.op) {
    case ReduceOp::avg: return run_any<Plain<T>, Average>(task);
    case ReduceOp::min: return run_any<Plain<T>, Min, kEffort>(task);
    case ReduceOp::max: return run_any<Plain<T>, Max, kEffort>(task);
    default: return reduce_unsigned<std::make_unsigned_t<T>>(task);
  }
}

void reduce_bits(ReduceTask const& task) {
  using Element = Plain<std::uint8_t>;
  ReduceTask const bytes{task.dsts,    task.srcs, task.count * size_of(task.dtype),
                         DataType::u8, task.how,  task.streaming};
  switch (task.how.op) {
    case ReduceOp::band: return run_any<Element, BitAnd, Effort::tuned>(bytes);
    case ReduceOp::bor: return run_any<Element, BitOr, Effort::tuned>(bytes);
    default: return run_any<Element, BitXor, Effort::tuned>(bytes);
  }
}

void reduce_integers_kernel(ReduceTask const& task) {
  WEFT_LEAVE_SHORT_TO_AVX2(reduce_integers_kernel, task);
  if (task.how.op >= ReduceOp::band && task.how.op <= ReduceOp::bxor) return reduce_bits(task);
  switch (task.dtype) {
    case DataType::i8: return reduce_elements<std::int8_t>(task);
    case DataType::u8: return reduce_elements<std::uint8_t>(task);
    case DataType::i16: return reduce_elements<std::int16_t>(task);
    case DataType::u16: return reduce_elements<std::uint16_t>(task);
    case DataType::i32: return reduce_elements<std::int32_t>(task);
    case DataType::u32: return reduce_elements<std::uint32_t>(task);
    case DataType::i64: return reduce_elements<std::int64_t>(task);
    case DataType::u64: return reduce_elements<std::uint64_t>(task);
    default: return;
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(reduce_integers_kernel);

void reduce_integers(ReduceTask const& task) {
  HWY_DYNAMIC_DISPATCH(reduce_integers_kernel)(task);
}

}  // namespace weft::kernels
#endif
