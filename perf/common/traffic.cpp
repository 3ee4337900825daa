#include "common/traffic.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft::perf {
namespace {

// Four floats at a time, as GCC's vector extension: the same code everywhere, plain loads and stores.
using Quad __attribute__((vector_size(16), aligned(4), may_alias)) = float;

Quad load(float const* from) {
  return *reinterpret_cast<Quad const*>(from);
}

template <bool kStreaming>
void store(float* to, Quad value) {
#if defined(__SSE2__)
  if constexpr (kStreaming) {
    _mm_stream_ps(to, reinterpret_cast<__m128 const&>(value));
    return;
  }
#endif
  *reinterpret_cast<Quad*>(to) = value;
}

template <bool kStreaming>
void sum_blocks(std::vector<float*> const& sources, std::vector<float*> const& targets, std::size_t first,
                std::size_t last) {
  constexpr std::size_t kLine = 16;  // floats
  for (std::size_t i = first; i < last; i += kLine) {
    Quad sums[4];
    for (std::size_t q = 0; q < 4; ++q) sums[q] = load(sources[0] + i + 4 * q);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      for (std::size_t q = 0; q < 4; ++q) sums[q] += load(sources[s] + i + 4 * q);
    }
    for (float* const target : targets) {
      for (std::size_t q = 0; q < 4; ++q) store<kStreaming>(target + i + 4 * q, sums[q]);
    }
  }
#if defined(__SSE2__)
  if constexpr (kStreaming) _mm_sfence();
#endif
}

}  // namespace

void sum_to_all(std::vector<float*> const& sources, std::vector<float*> const& targets, std::size_t first,
                std::size_t last, bool streaming) {
  streaming ? sum_blocks<true>(sources, targets, first, last) : sum_blocks<false>(sources, targets, first, last);
}

Share::Share(std::size_t elements, std::size_t index, std::size_t parts) {
  constexpr std::size_t kLine = 16;  // floats
  auto const lines = elements / kLine;
  first = lines * index / parts * kLine;
  last = lines * (index + 1) / parts * kLine;
}

}  // namespace weft::perf
