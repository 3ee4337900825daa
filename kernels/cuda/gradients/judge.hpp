#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/gradients/measure.hpp"
#include "kernels/math/clip.hpp"

namespace weft::kernels::cuda {

// A norm over tensors on several GPUs: each GPU combines its own parts, the GPUs' numbers are combined (by sum, or by
// maximum for the largest magnitude), and every GPU then comes to the same verdict.

/// What the GPUs combine: Σg² or the largest magnitude, and a number above 0 if something is not finite.
struct NormNumbers {
  double norm;
  double not_finite;
};

/// Combines the parts that one GPU has; one block.
struct CombinePartsBody {
  static constexpr unsigned kThreads = 256;
  using Shared = MeasuredShared;

  Measured const* parts = nullptr;
  std::uint32_t count = 0;
  bool largest = false;              ///< the largest magnitude instead of Σg²
  float const* found_inf = nullptr;  ///< not 0: something is not finite; may be null
  NormNumbers* out = nullptr;

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& shared) const {
    block.each_thread([&](unsigned t) {
      Measured own{};
      for (std::uint32_t k = t; k < count; k += kThreads) own.add(parts[k]);
      shared.part[t] = own;
    });
    combine_measured(block, shared);
    block.each_thread([&](unsigned t) {
      if (t != 0) return;
      Measured const& whole = shared.part[0];
      bool const finite = whole.not_finite == 0 && (found_inf == nullptr || *found_inf == 0);
      double const norm = largest ? static_cast<double>(whole.largest) : whole.squares;
      *out = {finite ? norm : 0, finite ? 0.0 : 1.0};
    });
  }
};

/// What a step needs to know about the norm.
struct Verdict {
  double norm;      ///< unscaled; unspecified where not finite
  float clip;       ///< multiplies gradients; 1 where not finite
  float found_inf;  ///< not 0: the step is skipped
  std::uint32_t not_finite;
};

/// Computes the verdict from the combined numbers of all GPUs; one block.
struct JudgeBody {
  static constexpr unsigned kThreads = 1;
  using Shared = Nothing;

  NormNumbers const* numbers = nullptr;
  bool largest = false;
  double max_norm = 0;               ///< 0: no clipping
  float const* factor = nullptr;     ///< of gradients that were measured before this factor is applied; may be null
  float const* found_inf = nullptr;  ///< an overflow that the caller knows of; may be null
  Verdict* out = nullptr;
  float* scaler_found_inf = nullptr;  ///< gets found_inf too; may be null

  template <typename Block>
  WEFT_KERNEL void operator()(Block& block, Shared& /*unused*/) const {
    block.each_thread([&](unsigned /*thread*/) {
      Verdict verdict{};
      verdict.not_finite = numbers->not_finite != 0 ? 1 : 0;
      verdict.norm = largest ? numbers->norm : std::sqrt(numbers->norm);
      if (factor != nullptr) verdict.norm *= std::fabs(static_cast<double>(*factor));
      verdict.clip = max_norm > 0 && verdict.not_finite == 0 ? clip_factor(verdict.norm, max_norm) : 1.0F;
      verdict.found_inf = verdict.not_finite != 0 ? 1.0F : found_inf != nullptr ? *found_inf : 0.0F;
      if (scaler_found_inf != nullptr) *scaler_found_inf = verdict.found_inf;
      *out = verdict;
    });
  }
};

}  // namespace weft::kernels::cuda
