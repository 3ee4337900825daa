#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/p2p/combiner.hpp"
#include "collectives/p2p/context.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {

/// Brings every rank's contributions to this rank's share together, chunk by chunk, and combines them in rank order, to
/// the bits of kernels::reduce. The contributions to the next chunks are on their way meanwhile: no more than kAhead
/// chunks, so ranks that are late are sent no more than that.
///
/// Every rank has a share; shares may overlap, as where every rank combines all. Chunk k is the k-th of every share, so
/// all ranks pass equal numbers of chunks, of which the last may be empty. Every rank combines all chunks, one after
/// the other, from 0.
class RankOrder {
 public:
  /// How many chunks are on their way at once.
  static constexpr std::size_t kAhead = 4;

  /// Where in the send buffer chunk k of a rank's share is; no longer than its chunk 0.
  using Chunk = std::function<ByteRange(int owner, std::size_t k)>;

  /// This rank's contributions to the first kAhead chunks are there.
  RankOrder(Context& context, Call const& call, std::size_t chunks, Chunk chunk);
  /// Chunks are Tuning::chunk_bytes of a share, one after the other.
  RankOrder(Context& context, Call const& call, Shares const& shares);

  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] ByteRange chunk(int owner, std::size_t k) const { return chunk_(owner, k); }
  /// Writes this rank's chunk k. This rank's own contributions to chunk k have left then: `result` may be where they
  /// lay.
  void combine(std::size_t k, void* result);
  /// After combine(k), and what is sent of its results: lets the contributions to chunk k + kAhead come. This rank's
  /// are there.
  void go_on(std::size_t k) {
    if (k + kAhead < chunks_) ask(k + kAhead);
  }
  /// Ends what is under way where the transport has been told of a failure. After an error of the transport's own there
  /// is nothing.
  void abandon() noexcept;

 private:
  [[nodiscard]] std::byte* slot(int from, std::size_t k) const noexcept;
  void ask(std::size_t k);
  void reduce(std::vector<void const*> const& contributions, std::size_t count, void* result);

  Context context_;  // whose partial results are wide
  Call const& call_;
  Combiner combiner_;
  std::vector<double> scales_;
  std::size_t chunks_;
  Chunk chunk_;
  std::size_t longest_;  // of this rank's chunks
  std::byte* gathered_ = nullptr;
  std::byte* partials_[2] = {};  // where there are too many ranks for kernels::reduce
  std::array<std::vector<Request>, kAhead> requests_;
};

}  // namespace weft::p2p
