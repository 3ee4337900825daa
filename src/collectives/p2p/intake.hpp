#pragma once

#include <array>
#include <functional>

#include "collectives/p2p/context.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {

/// Receives chunks from one rank, one after the other, into its own memory. Receives for the next kAhead chunks are
/// started ahead.
class Intake {
 public:
  /// `width`: bytes of a grain of `chunks`. Where `from` is negative, nothing is received.
  Intake(Context& context, int from, Chunks const& chunks, std::size_t width)
      : context_(context), from_(from), chunks_(chunks), width_(width) {
    if (from < 0) return;
    memory_ = context.workspace(kAhead * std::min(chunks.length, chunks.count) * width);
    for (std::size_t k = 0; k < kAhead; ++k) ask(k);
  }

  /// Waits for the next chunk; it stays valid until the next call.
  [[nodiscard]] std::byte const* next() {
    if (next_ > 0) ask(next_ - 1 + kAhead);
    context_.wait(requests_[next_ % kAhead]);
    return slot(next_++);
  }

 private:
  static constexpr std::size_t kAhead = 4;

  [[nodiscard]] std::byte* slot(std::size_t k) const noexcept {
    return at(memory_, k % kAhead * std::min(chunks_.length, chunks_.count) * width_);
  }
  void ask(std::size_t k) {
    if (k < chunks_.size()) requests_[k % kAhead] = context_.start_recv(from_, slot(k), chunks_[k].count * width_);
  }

  Context& context_;
  int from_;
  Chunks chunks_;
  std::size_t width_;
  std::byte* memory_ = nullptr;
  std::array<Request, kAhead> requests_{};
  std::size_t next_ = 0;
};

}  // namespace weft::p2p
