#include "collectives/p2p/combiner.hpp"

#include <algorithm>
#include <complex>
#include <cstring>

#include "collectives/p2p/element.hpp"

namespace weft::p2p {
namespace {

bool accumulates(ReduceOp op) noexcept {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::prod || op == ReduceOp::premul_sum;
}

DataType partial_type(DataType dtype, ReduceOp op, Tuning const& tuning) noexcept {
  auto const narrow = is_floating_point(dtype) && size_of(dtype) < size_of(DataType::f32);
  if (!narrow || !accumulates(op) || (tuning.narrow_partials && size_of(dtype) > 1)) return dtype;
  return DataType::f32;
}

ReduceOp step_of(ReduceOp op) noexcept {
  return op == ReduceOp::avg || op == ReduceOp::premul_sum ? ReduceOp::sum : op;
}

/// Whether contributions must be changed to become partial results: truth values must be 0 or 1.
bool normalises(DataType dtype, ReduceOp op) noexcept {
  return dtype == DataType::boolean || op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor;
}

/// Divides as kernels::reduce does: integers truncate.
template <typename T>
void divide(void* values, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    auto* const at = static_cast<std::byte*>(values) + i * sizeof(T);
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      store(at, from_float<T>(to_float(load<T>(at)) / static_cast<float>(ranks)));
    } else if constexpr (std::is_integral_v<T>) {
      using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;  // has any number of ranks
      store(at, static_cast<T>(Wide{load<T>(at)} / static_cast<Wide>(ranks)));
    } else {
      store(at, load<T>(at) / static_cast<T>(ranks));
    }
  }
}

void divide(void* values, std::size_t count, DataType dtype, int ranks) {
  switch (dtype) {
    case DataType::i8: return divide<std::int8_t>(values, count, ranks);
    case DataType::u8: return divide<std::uint8_t>(values, count, ranks);
    case DataType::i16: return divide<std::int16_t>(values, count, ranks);
    case DataType::u16: return divide<std::uint16_t>(values, count, ranks);
    case DataType::i32: return divide<std::int32_t>(values, count, ranks);
    case DataType::u32: return divide<std::uint32_t>(values, count, ranks);
    case DataType::i64: return divide<std::int64_t>(values, count, ranks);
    case DataType::u64: return divide<std::uint64_t>(values, count, ranks);
    case DataType::f16: return divide<Half>(values, count, ranks);
    case DataType::bf16: return divide<BFloat16>(values, count, ranks);
    case DataType::f32: return divide<float>(values, count, ranks);
    case DataType::f64: return divide<double>(values, count, ranks);
    case DataType::c64: return divide<float>(values, 2 * count, ranks);
    case DataType::c128: return divide<double>(values, 2 * count, ranks);
    case DataType::f8e4m3:
    case DataType::f8e5m2:
    case DataType::boolean: return;  // partial results are f32; truth values have no average
  }
}

}  // namespace

Combiner::Combiner(Context& context, Call const& call)
    : context_(context),
      dtype_(call.contract.dtype),
      partial_(partial_type(call.contract.dtype, call.contract.reduce, context.tuning())),
      op_(call.contract.reduce),
      steps_(step_of(call.contract.reduce), nullptr, call.user),
      scale_(call.scale),
      grain_(call.grain()),
      width_(partial_ == dtype_ ? grain_ : size_of(partial_)) {}

bool Combiner::is_plain() const noexcept {
  return partial_ == dtype_ && op_ != ReduceOp::premul_sum && !normalises(dtype_, op_);
}

void Combiner::load(void* partial, void const* contribution, std::size_t count) const {
  if (is_plain()) return context_.copy(partial, contribution, count * grain_);
  if (!context_.carries_data()) return;
  auto const* from = contribution;
  if (partial_ != dtype_) {
    widen(partial, contribution, count);
    from = partial;
  }
  if (op_ == ReduceOp::premul_sum) {
    kernels::reduce({&partial, 1}, {&from, 1}, count, partial_, {ReduceOp::premul_sum, &scale_, {}});
  } else if (partial_ == dtype_) {
    kernels::reduce({&partial, 1}, {&from, 1}, count, partial_, steps_);
  }
}

void const* Combiner::loaded(void const* contribution, void* scratch, std::size_t count) const {
  if (is_plain()) return contribution;
  load(scratch, contribution, count);
  return scratch;
}

void Combiner::combine(void* to, void const* earlier, void const* later, std::size_t count) const {
  void const* const both[] = {earlier, later};
  combine(to, both, count);
}

void Combiner::combine(void* to, std::span<void const* const> partials, std::size_t count) const {
  if (count == 0) return;
  if (context_.carries_data()) kernels::reduce({&to, 1}, partials, count, partial_, steps_);
  context_.transport().reduced((partials.size() - 1) * count * width_);
}

void Combiner::finish(void* result, void const* partial, std::size_t count) const {
  if (!context_.carries_data()) return;
  if (partial_ == dtype_) {
    context_.copy(result, partial, count * grain_);
    if (op_ == ReduceOp::avg) divide(result, count, dtype_, context_.size());
    return;
  }
  narrow(result, partial, count);
}

void Combiner::widen(void* partial, void const* contribution, std::size_t count) const {
  with_narrow_float(dtype_, [&]<typename T>(T /*type*/) {
    for (std::size_t i = 0; i < count; ++i) {
      store(at(partial, i * sizeof(float)), to_float(p2p::load<T>(at(contribution, i * sizeof(T)))));
    }
  });
}

void Combiner::narrow(void* result, void const* partial, std::size_t count) const {
  auto const divisor = op_ == ReduceOp::avg ? static_cast<float>(context_.size()) : 1.0F;
  with_narrow_float(dtype_, [&]<typename T>(T /*type*/) {
    for (std::size_t i = 0; i < count; ++i) {
      store(at(result, i * sizeof(T)), from_float<T>(p2p::load<float>(at(partial, i * sizeof(float))) / divisor));
    }
  });
}

}  // namespace weft::p2p
