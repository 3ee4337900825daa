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

/// Memory of this host's ranks that belongs to neither of the measured libraries: one mapping shared by all ranks.
/// Where ranks are on several test hosts of one machine (perf/hosts_perf.py), WEFT_PERF_BOARD names a folder in which
/// they can share it all the same.
class SharedArena {
 public:
  /// Collective: `bytes` zero-filled bytes mapped by every rank. Nothing is left behind, whichever rank dies.
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

/// How the ranks' times become one figure; the values are nccl-tests' -a.
enum class Across { rank0 = 0, average = 1, min = 2, max = 3 };

/// Start line and score board: a barrier and a maximum that cost the measured libraries nothing and warm none of their
/// caches. With more ranks than processors waiting yields, otherwise it spins. Ranks of several hosts, which have no
/// such memory, meet by the Meeting's own calls.
class Board {
 public:
  explicit Board(Meeting const& meeting);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// More ranks than processors that they may run on.
  [[nodiscard]] bool crowded() const noexcept { return crowded_; }
  /// Whether ranks meet by flags in memory that they share.
  [[nodiscard]] bool has_flags() const noexcept { return arena_.has_value(); }

  /// Returns once every rank has entered. @throws Error{timeout} that names one that does not come.
  void barrier();
  /// Collective: the ranks' values, element by element, made one by `how`; equal sizes, the same result on every rank.
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
  /// Every rank's values, one rank's after the other's.
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
