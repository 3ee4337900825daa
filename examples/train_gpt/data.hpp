#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpt_model.hpp"

namespace train_gpt {

/// The bytes to learn from and where they came from.
struct Text {
  std::string source;
  std::vector<std::uint8_t> bytes;

  [[nodiscard]] std::uint64_t fingerprint() const noexcept;
};

/// Reads `file`, or without one the regular files of /usr/share/common-licenses in the order of their names, each once
/// however many links lead to it. @throws std::runtime_error naming the path when it is missing, unreadable, or shorter
/// than seq + 1 bytes.
[[nodiscard]] Text load_text(std::optional<std::filesystem::path> const& file, int seq);
/// @throws std::runtime_error when `text` has no sequence of `seq` bytes and the byte after it.
void check_length(Text const& text, int seq);

/// Chooses the same global batch for a step however many ranks share it: sequence i of step s starts at a position that
/// depends on (seed, s, i) only, and rank r of n takes sequences [r·batch/n, (r+1)·batch/n). Keeps no state, so
/// resuming needs none.
class BatchSampler {
 public:
  /// `text` must outlive it and hold more than `seq` bytes; `ranks` divides `global_batch`.
  BatchSampler(Text const& text, int seq, int global_batch, std::uint64_t seed, int rank, int ranks) noexcept
      : text_(text),
        seq_(seq),
        first_(rank * (global_batch / ranks)),
        count_(global_batch / ranks),
        batch_(global_batch),
        seed_(seed) {}

  /// This rank's sequences of a step.
  [[nodiscard]] Batch sample(int step) const;
  /// The same in `passes` equal batches; `passes` divides their number.
  [[nodiscard]] std::vector<Batch> sample(int step, int passes) const;

 private:
  Text const& text_;
  int seq_;
  int first_;
  int count_;
  int batch_;
  std::uint64_t seed_;
};

}  // namespace train_gpt
