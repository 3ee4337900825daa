#pragma once

#include "weft/bucket_hook.hpp"
#include "weft/data_type.hpp"

namespace weft {

struct CompressionOptions {
  DataType wire = DataType::bf16;  ///< or f16
  /// What rounding takes from a gradient is added to the next step's: over many steps nothing is lost. 4 bytes an
  /// element. Elements that are not finite leave nothing behind. Residuals are in the units of the gradients: do not
  /// change a loss scale while they count.
  bool error_feedback = false;
};

/// A hook that sends f32 buckets as 16-bit floats: half the bytes, one symmetric buffer of half the largest bucket. The
/// collective adds up in f32 and rounds once (where ranks are on several hosts, partial results once more). With unit
/// roundoff u (2^−8 for bf16, 2^−11 for f16), an average differs from the exact one of finite gradients by at most
///   u · mean|g_r| + u · |average| · (1 + u)
/// and in f16 by 2^−24 more, below whose smallest normal value it rounds absolutely; magnitudes above 65504 become
/// infinite, as overflowing gradients do. Buckets of other types are sent as they are. With error feedback g_r stands
/// for gradient plus residual; the first term is then made up for in later steps, the second (equal on all ranks) is
/// not.
///
/// Each Bucketer needs a hook of its own: it keeps the residuals. Copies share them.
/// @throws Error{invalid_argument} for another wire type.
[[nodiscard]] BucketHook compress_gradients(CompressionOptions const& options = {});

}  // namespace weft
