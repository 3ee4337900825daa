#include "kernels/cpu/reduce_task.hpp"

#include "kernels/cpu/targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce_byte_floats.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "kernels/cpu/reduce_kernel-inl.h"
#include "kernels/cpu/short_reduction-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels::HWY_NAMESPACE {

template <typename Element>
void reduce_elements(ReduceTask const& task) {
  switch (task.how.op) {
    case ReduceOp::sum: return run_any<Element, Sum>(task);
    case ReduceOp::avg: return run_any<Element, Average>(task);
    case ReduceOp::prod: return run_any<Element, Product>(task);
    case ReduceOp::min: return run_any<Element, Min>(task);
    case ReduceOp::max: return run_any<Element, Max>(task);
    case ReduceOp::premul_sum: return run_any<Element, ScaledSum>(task);
    case ReduceOp::land: return run_any<Element, LogicalAnd>(task);
    case ReduceOp::lor: return run_any<Element, LogicalOr>(task);
    case ReduceOp::lxor: return run_any<Element, LogicalXor>(task);
    default: return;  // supports() no other
  }
}

void reduce_byte_floats_kernel(ReduceTask const& task) {
  WEFT_LEAVE_SHORT_TO_AVX2(reduce_byte_floats_kernel, task);
  task.dtype == DataType::f8e4m3 ? reduce_elements<Narrow<Float8E4M3Codec>>(task)
                                 : reduce_elements<Narrow<Float8E5M2Codec>>(task);
}

}  // namespace weft::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(reduce_byte_floats_kernel);

void reduce_byte_floats(ReduceTask const& task) {
  HWY_DYNAMIC_DISPATCH(reduce_byte_floats_kernel)(task);
}

}  // namespace weft::kernels
#endif
