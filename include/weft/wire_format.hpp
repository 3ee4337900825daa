#pragma once

#include <memory>
#include <string_view>

namespace weft {

/// What sums and averages of f32 cross from one host to another as: all_reduce and reduce_scatter of more than 4 KiB,
/// by sum, avg or premul_sum; calls that are merged (Group, fuse) are as long as all of them together. Everything else
/// crosses as it is, and inside a host all is f32.
///
/// A host's contributions combine in f32 to P_h, which is rounded; the rounded ones of all H hosts combine in f32, and
/// the results of all_reduce are rounded once more, so that every rank has the same bits. So a result differs from the
/// exact one of finite contributions by at most
///   Σ_h w_h·δ(P_h) + δ(R),   δ(R) for all_reduce alone, R: the sum of what was rounded
/// besides f32's own roundings; w_h is 1, or of averages the host's share of the ranks. With δ(x) =
///   bf16:  max(2^−8·|x|, 2^−134)
///   fp8:   max(2^−4·|x|, 2^−17·m, 2^−137), m: the largest magnitude in x's block
/// as long as no |x| reaches (2 − 2^−8)·2^127 (bf16) or (2 − 2^−4)·2^127 (fp8): from there on, 0.2% and 3% below the
/// end of f32, it arrives as infinity. fp8 is OCP's MXFP8: e4m3, and for every 32 elements, counted from the beginning
/// of a rank's part, one power of two (a block with a value that is not finite arrives as NaN). In bf16 results do not
/// depend on where a buffer is cut or merged with others, as elsewhere, but for calls of up to 4 KiB, which by
/// themselves cross as they are; in fp8 they depend on it, as blocks do.
enum class WireFormat {
  f32,   ///< as it is
  bf16,  ///< half the bytes
  fp8,   ///< 33 bytes for 32 elements
};

/// Its name as WEFT_WIRE takes it.
[[nodiscard]] std::string_view to_string(WireFormat format) noexcept;

/// Error feedback: what rounding took from this rank's part of a call is added to the next call that is given the same
/// object. One for each buffer that is reduced again and again (Bucketer has its own); calls come one after the other.
/// Of T calls the mean result then differs from the mean of the exact ones by what is left over, divided by T: about
/// one call's error, so it goes to zero. What is not finite leaves nothing behind.
///
/// 4 bytes for each element of the buffer, divided by the ranks of the host, and once more by all ranks. Where the
/// count is another than before it begins anew. Ranks need not agree on it. Merged calls (Group, fuse) ignore it, as
/// does memory on a GPU.
class WireFeedback {
 public:
  WireFeedback();
  ~WireFeedback();
  WireFeedback(WireFeedback&&) noexcept;
  WireFeedback& operator=(WireFeedback&&) noexcept;

  /// Begins anew; between calls.
  void forget() noexcept;

  class State;  ///< collectives/hierarchical/wire_state.hpp
  [[nodiscard]] State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace weft
