#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "weft/bucket_hook.hpp"
#include "weft/data_type.hpp"

namespace weft {

struct CompressionOptions {
  DataType wire = DataType::bf16;  ///< or f16
  /// What rounding takes from a gradient is added to the next step's: over many steps nothing is lost. 4 bytes an
  /// element. Elements that are not finite leave nothing behind. Residuals are in the units of the gradients: do not
  /// change a loss scale while they count.
  bool error_feedback = false;
  /// To find mistakes: NaN is written over f32 gradients once they are rounded (until averages take their place), and
  /// over the rounded ones once those are widened.
  bool poison = false;
};

/// Sends f32 buckets as 16-bit floats: half the bytes, one symmetric buffer of half the largest bucket. The
/// collective adds up in f32 and rounds once (where ranks are on several hosts, partial results once more). With unit
/// roundoff u (2^−8 for bf16, 2^−11 for f16), an average differs from the exact one of finite gradients by at most
///   u · mean|g_r| + u · |average| · (1 + u)
/// and in f16 by 2^−24 more, below whose smallest normal value it rounds absolutely; magnitudes above 65504 become
/// infinite, as overflowing gradients do. Buckets of other types are sent as they are. With error feedback g_r stands
/// for gradient plus residual; the first term is then made up for in later steps, the second (equal on all ranks) is
/// not.
///
/// Each Bucketer needs one of its own, for its residuals: they are this rank's, by tensor. Copies share them. A run
/// that goes on elsewhere needs them too: weft/training_checkpoint.hpp saves and loads them.
///
///   weft::GradientCompressor compressor({.error_feedback = true});
///   weft::DataParallel ddp(world, parameters, {.hook = compressor.hook()});
///
/// Not thread-safe; residuals are read and set between steps.
class GradientCompressor {
 public:
  /// @throws Error{invalid_argument} for another wire type.
  explicit GradientCompressor(CompressionOptions const& options = {});

  [[nodiscard]] BucketHook hook() const;

  /// Of a tensor of the Bucketer's; empty where there are none: without error feedback, of other types, and before the
  /// first step. Of gradients on a GPU a copy, for which it waits for the GPU.
  [[nodiscard]] std::span<float const> residual(std::size_t tensor) const;
  /// As many as the tensor has elements, else the step fails; or none: they are zeros. Without error feedback they are
  /// ignored.
  void set_residual(std::size_t tensor, std::vector<float> values);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

/// The hook alone.
[[nodiscard]] BucketHook compress_gradients(CompressionOptions const& options = {});

}  // namespace weft
