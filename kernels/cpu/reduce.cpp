#include "kernels/cpu/reduce.hpp"

#include <unistd.h>

#include "kernels/cpu/reduce_task.hpp"

namespace weft::kernels {
namespace {

/// The logical operator that an operator stands for on booleans.
ReduceOp logical(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::land:
    case ReduceOp::band: return ReduceOp::land;
    case ReduceOp::lxor:
    case ReduceOp::bxor: return ReduceOp::lxor;
    default: return ReduceOp::lor;
  }
}

void reduce_boolean(ReduceTask const& task) {
  Reducer const how = logical(task.how.op);
  reduce_integers({task.dsts, task.srcs, task.count, DataType::u8, how, task.streaming});
}

/// All operators except the product treat the two parts of a complex number as separate numbers.
void reduce_complex(ReduceTask const& task) {
  if (task.how.op == ReduceOp::prod) return reduce_complex_product(task);
  auto const part = task.dtype == DataType::c64 ? DataType::f32 : DataType::f64;
  reduce_floats({task.dsts, task.srcs, 2 * task.count, part, task.how, task.streaming});
}

/// Whether the reduction of a single contribution is that contribution itself.
bool keeps_one(DataType dtype, ReduceOp op) {
  return dtype != DataType::boolean && (op <= ReduceOp::max || (op >= ReduceOp::band && op <= ReduceOp::bxor));
}

bool is_by_amd() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

void run(ReduceTask const& task) {
  if (task.how.op == ReduceOp::user) return reduce_user(task);
  switch (task.dtype) {
    case DataType::f32:
    case DataType::f64: return reduce_floats(task);
    case DataType::f16:
    case DataType::bf16: return reduce_narrow_floats(task);
    case DataType::f8e4m3:
    case DataType::f8e5m2: return reduce_byte_floats(task);
    case DataType::c64:
    case DataType::c128: return reduce_complex(task);
    case DataType::boolean: return reduce_boolean(task);
    case DataType::i8:
    case DataType::u8:
    case DataType::i16:
    case DataType::u16:
    case DataType::i32:
    case DataType::u32:
    case DataType::i64:
    case DataType::u64: return reduce_integers(task);
  }
}

}  // namespace

std::size_t pages_at_once() noexcept {
  static std::size_t const pages = [] {
    if (::sysconf(_SC_LEVEL1_DCACHE_ASSOC) < 12) return 4;
    return is_by_amd() ? 2 : 16;
  }();
  return pages;
}

void reduce(std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count, DataType dtype,
            Reducer const& how, Store store) {
  if (count == 0 || dsts.empty()) return;
  if (srcs.size() == 1 && keeps_one(dtype, how.op)) {
    for (void* dst : dsts) {
      if (dst != srcs[0]) copy(dst, srcs[0], count * size_of(dtype), store);
    }
    return;
  }
  run(ReduceTask{dsts, srcs, count, dtype, how, is_past_caches(store)});
  if (store == Store::streaming) fence();
}

void reduce_alike(std::size_t ranges, std::span<void* const> dsts, std::span<void const* const> srcs, std::size_t count,
                  DataType dtype, Reducer const& how, Store store) {
  if (ranges == 0) return;
  auto const to = dsts.size() / ranges;
  auto const from = srcs.size() / ranges;
  auto const together =
      dtype == DataType::f32 || dtype == DataType::f64 || dtype == DataType::f16 || dtype == DataType::bf16;
  if (!together || from < 2 || how.op == ReduceOp::user) {
    for (std::size_t k = 0; k < ranges; ++k) {
      reduce(dsts.subspan(k * to, to), srcs.subspan(k * from, from), count, dtype, how, store);
    }
    return;
  }
  if (count == 0 || to == 0) return;
  run(ReduceTask{dsts.first(to), srcs.first(from), count, dtype, how, is_past_caches(store), ranges});
  if (store == Store::streaming) fence();
}

}  // namespace weft::kernels
