#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/meeting.hpp"
#include "core/yielder.hpp"

namespace weft::perf {

/// Memory that all ranks of this host share and that belongs to none of the measured libraries. If ranks are on several
/// test hosts of one machine (perf/hosts_perf.py), WEFT_PERF_BOARD names a folder through which they can still share
/// it.
class SharedArena {
 public:
  /// Collective: `bytes` zero-filled bytes, mapped by every rank. No file is left behind, whichever rank dies.
  /// @throws Error{system|out_of_memory}
  SharedArena(Meeting const& meeting, std::size_t bytes);
  ~SharedArena();
  SharedArena(SharedArena const&) = delete;
  SharedArena& operator=(SharedArena const&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// How the ranks' times become one figure. The values are those of nccl-tests' option -a.
enum class Across { rank0 = 0, average = 1, min = 2, max = 3 };

/// Start line and score board of the ranks: a barrier and reductions of figures that cost the measured libraries
/// nothing and warm none of their caches. Waiting spins, or yields if there are more ranks than processors. Ranks of
/// several hosts, which share no memory, use the Meeting's own calls instead.
class Board {
 public:
  explicit Board(Meeting const& meeting);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Whether there are more ranks than processors that they may run on.
  [[nodiscard]] bool crowded() const noexcept { return crowded_; }
  /// Whether the ranks' barrier uses flags in shared memory.
  [[nodiscard]] bool has_flags() const noexcept { return arena_.has_value(); }

  /// Returns once every rank has entered. @throws Error{timeout} naming a rank that does not come.
  void barrier();
  /// Collective: combines the ranks' values by `how`, element by element. Sizes must be equal; every rank gets the same
  /// result.
  [[nodiscard]] std::vector<double> combine(std::vector<double> const& mine, Across how);
  [[nodiscard]] double combine(double mine, Across how) { return combine(std::vector<double>{mine}, how).front(); }
  [[nodiscard]] double max(double mine) { return combine(mine, Across::max); }
  /// Collective: sum over the ranks.
  [[nodiscard]] double sum(double mine);

 private:
  struct alignas(128) Flag {
    std::atomic<std::uint64_t> epoch;
  };
  [[nodiscard]] double* values(int rank) const noexcept;
  [[nodiscard]] Flag& flag(int rank) const noexcept;
  [[nodiscard]] int processors();
  void wait_for(int rank);
  void give_way();
  /// Every rank's values, in rank order.
  [[nodiscard]] std::vector<double> gather(std::vector<double> const& mine);

  Meeting meeting_;
  int rank_;
  int ranks_;
  bool crowded_ = true;
  std::chrono::milliseconds late_ = Yielder::kLate;
  std::uint64_t epoch_ = 0;
  Yielder yielder_;
  std::optional<SharedArena> arena_;
};

}  // namespace weft::perf
