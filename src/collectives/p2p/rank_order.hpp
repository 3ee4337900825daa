#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/p2p/combiner.hpp"
#include "collectives/p2p/context.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {

/// Gathers every rank's contributions to this rank's share, chunk by chunk, and combines them in rank order, with the
/// bits of kernels::reduce. Meanwhile the contributions to the next chunks are on their way: kAhead chunks at most, so
/// that a rank that is late is sent no more than that.
///
/// Every rank has a share; shares may overlap, and do where every rank combines everything. Chunk k is the k-th of
/// every share. So all ranks pass the same number of chunks, of which the last may be empty, and combine all of them,
/// one after the other, from 0.
class RankOrder {
 public:
  /// How many chunks are on their way at once.
  static constexpr std::size_t kAhead = 4;

  /// Where in the send buffer chunk k of `owner`'s share lies; no longer than its chunk 0.
  using Chunk = std::function<ByteRange(int owner, std::size_t k)>;

  /// Starts the first kAhead chunks, so this rank's contributions to them must be there.
  RankOrder(Context& context, Call const& call, std::size_t chunks, Chunk chunk);
  /// The same with chunks of Tuning::chunk_bytes, one after the other in a share.
  RankOrder(Context& context, Call const& call, Shares const& shares);

  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] ByteRange chunk(int owner, std::size_t k) const { return chunk_(owner, k); }
  /// Waits for chunk k, and writes this rank's result for it. By then its contributions to other ranks' chunk k have
  /// left, so `result` may lie where those were.
  void combine(std::size_t k, void* result);
  /// Starts chunk k + kAhead, to which this rank's contributions must be there. Call it after combine(k), and after its
  /// results have been sent on.
  void go_on(std::size_t k) {
    if (k + kAhead < chunks_) ask(k + kAhead);
  }
  /// Ends what is under way, after the transport has been told of a failure. After an error of the transport's own
  /// nothing is under way.
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
