#pragma once

#include <cstddef>
#include <span>

#include "collectives/call.hpp"
#include "collectives/p2p/context.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::p2p {

/// Turns the contributions to one call into partial results, combines these, and turns the last one into a result.
///
/// Partial results of sums and products of 8-bit and 16-bit floats are f32 (see Tuning), and those of averages are
/// sums. All others have the call's data type. Counts are in grains: elements of the data type, or of the caller's own.
class Combiner {
 public:
  Combiner(Context& context, Call const& call);

  [[nodiscard]] std::size_t grain() const noexcept { return grain_; }               ///< bytes in the callers' buffers
  [[nodiscard]] std::size_t width() const noexcept { return width_; }               ///< bytes as a partial result
  [[nodiscard]] bool is_ordered() const noexcept { return op_ == ReduceOp::user; }  ///< does not commute

  /// Turns contributions into partial results; may be in place where grain() == width().
  void load(void* partial, void const* contribution, std::size_t count) const;
  /// The partial results of `contribution`: where nothing has to change, `contribution` itself, else `scratch`.
  [[nodiscard]] void const* loaded(void const* contribution, void* scratch, std::size_t count) const;
  /// to = earlier op later, in this order where is_ordered(). `to` may be either of them.
  void combine(void* to, void const* earlier, void const* later, std::size_t count) const;
  /// Combines all of `partials`, in the order given.
  void combine(void* to, std::span<void const* const> partials, std::size_t count) const;
  /// Turns the combined contributions of all ranks into results; may be in place where grain() == width().
  void finish(void* result, void const* partial, std::size_t count) const;

 private:
  [[nodiscard]] bool is_plain() const noexcept;
  void widen(void* partial, void const* contribution, std::size_t count) const;
  void narrow(void* result, void const* partial, std::size_t count) const;

  Context& context_;
  DataType dtype_;    // of buffers
  DataType partial_;  // of partial results
  ReduceOp op_;
  kernels::Reducer steps_;  // of partial results
  double scale_;
  std::size_t grain_;
  std::size_t width_;
};

}  // namespace weft::p2p
