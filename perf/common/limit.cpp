#include "common/limit.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "common/pattern.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;

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

std::size_t line_floats(std::size_t bytes) {
  return (bytes + 63) / 64 * 16;
}

}  // namespace

void sum_to_all(std::vector<float*> const& sources, std::vector<float*> const& targets, std::size_t first,
                std::size_t last, bool streaming) {
  streaming ? sum_blocks<true>(sources, targets, first, last) : sum_blocks<false>(sources, targets, first, last);
}

PhysicalLimit::PhysicalLimit(Communicator& communicator, Board& board, Case const& what, std::size_t max_bytes,
                             int root)
    : board_(board),
      case_(what),
      root_(root),
      arena_(communicator, 2 * static_cast<std::size_t>(board.ranks()) * line_floats(max_bytes) * sizeof(float)) {
  auto* next = reinterpret_cast<float*>(arena_.data());
  for (int rank = 0; rank < board.ranks(); ++rank) {
    sends_.push_back(next);
    recvs_.push_back(next + line_floats(max_bytes));
    next += 2 * line_floats(max_bytes);
  }
}

double PhysicalLimit::measure(std::size_t elements, int iterations, bool streaming) {
  auto const rank = static_cast<std::size_t>(board_.rank());
  Pattern const pattern(DataType::f32, board_.rank());
  BufferView const send(sends_[rank], elements, DataType::f32);
  BufferView const recv(recvs_[rank], elements, DataType::f32);
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < iterations; ++i) {
    pattern.write(send, static_cast<std::uint64_t>(i));
    board_.barrier();
    auto const start = Clock::now();
    case_.touch(sends_, recvs_, elements, board_.rank(), root_, streaming);
    std::chrono::duration<double> const took = Clock::now() - start;
    best = std::min(best, board_.max(took.count()));
    read_all(recv);
  }
  return best;
}

double PhysicalLimit::traffic(std::size_t bytes, int iterations) {
  auto const elements = line_floats(bytes);
  static_cast<void>(measure(elements, 1, false));  // page faults
  return std::min(measure(elements, iterations, false), measure(elements, iterations, true));
}

double flag_exchange(Board& board) {
  double best = std::numeric_limits<double>::max();
  int const exchanges = board.crowded() ? 200 : 2000;
  for (int repeat = 0; repeat < 5; ++repeat) {
    board.barrier();
    auto const start = Clock::now();
    for (int i = 0; i < exchanges; ++i) board.barrier();
    std::chrono::duration<double> const took = Clock::now() - start;
    best = std::min(best, board.max(took.count() / exchanges));
  }
  return best;
}

}  // namespace weft::perf
