#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "bucketing/device_timing.hpp"
#include "sharding/compute_side.hpp"
#include "sharding/gather_planner.hpp"
#include "sharding/unit_layout.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Gathers units from their shards into a pool of symmetric memory, and releases them, as a GatherPlanner decides. With
/// one rank shards are whole: there is no pool, and units are used where they are. On a GPU it is the compute side that
/// waits, wherever this says "wait" or "blocks". It may still be using a unit that is released: the next gather to the
/// same place is ordered behind that use. Not thread-safe. Must not be moved during a gather.
class UnitGatherer {
 public:
  struct Options {
    GatherPolicy policy;
    Stream stream;
    bool poison = false;
    ComputeSide compute{};
    bool timed = false;  ///< on a GPU, by events
  };

  /// Collective. Layout and communicator must outlive it.
  UnitGatherer(Communicator& communicator, UnitLayout const& layout, Options options);

  /// This rank's part of a flat parameter; zeros at first. Must not be written while gathers are under way.
  [[nodiscard]] BufferView shard(std::size_t flat) const noexcept { return shards_[flat]; }

  /// A turn begins: starts the gathers that the planner asks for. Call wait_for() before the unit is used.
  void begin(Use const& use);
  void wait_for(std::size_t unit);
  void end(Use const& use);
  /// Releases every unit. Once it returns shards may be written.
  void release_all();
  /// Continues with another policy, between turns. On the host only. Collective. @throws Error{out_of_memory} on every
  /// rank, with nothing changed.
  void use(GatherPolicy const& policy);
  [[nodiscard]] GatherPolicy const& policy() const noexcept { return options_.policy; }
  /// Closes the record of this step, and decides which units are gathered first in the next one.
  void end_step();
  /// Starts those first gathers, in order, up to the first unit whose shards are not `updated`; the next begin() starts
  /// the rest.
  void launch_first(std::span<char const> updated);
  /// Blocks until shards are not read any more.
  void wait_for_all();
  /// The same; in addition what comes next is ordered behind everything that is done on stream().
  void join();
  /// Waits for what is under way; logs a failure if `log_failures`. False where there was one.
  bool drain(bool log_failures) noexcept;

  /// The stream that gathers run on.
  [[nodiscard]] Stream const& stream() const noexcept { return options_.stream; }
  /// Where a parameter lies while its unit is gathered.
  [[nodiscard]] BufferView parameter(std::size_t index) const noexcept;
  [[nodiscard]] GatherPlanner const& planner() const noexcept { return planner_; }
  [[nodiscard]] std::size_t pool_bytes() const noexcept { return pool_.view().bytes(); }
  [[nodiscard]] std::size_t shard_bytes() const noexcept { return shard_memory_.view().bytes(); }
  /// The times of the last step's gathers; empty on a GPU.
  [[nodiscard]] std::span<BucketTiming const> timings() const noexcept { return timings_; }
  /// The same on a GPU, see Bucketer::timings_since().
  [[nodiscard]] std::vector<BucketTiming> timings_since(Event const& origin,
                                                        std::chrono::steady_clock::time_point at) const {
    return read_all(device_timings_, origin, at);
  }

 private:
  struct Launch {
    std::size_t flat;
    Work work;
    std::optional<DeviceTiming> timing;
  };

  [[nodiscard]] bool owns_all() const noexcept { return communicator_.size() == 1; }
  void carry_out();
  void carry_out(GatherAction const& action);
  void launch(Use const& use, std::size_t offset);
  void gather(std::size_t flat, BufferView const& to, CollectiveOptions const& how);
  void poison(std::size_t unit, std::size_t offset);
  [[nodiscard]] BufferView flat_at(std::size_t flat, std::size_t unit_offset) const noexcept;

  Communicator& communicator_;
  UnitLayout const& layout_;
  Options options_;
  GatherPlanner planner_;
  std::size_t carried_out_ = 0;  ///< how many of the planner's actions
  Buffer pool_;
  Buffer shard_memory_;
  std::vector<BufferView> shards_;  ///< by flat
  std::vector<Work> works_;         ///< by flat: its last gather; on a GPU until the compute side waits for it
  std::vector<std::optional<DeviceTiming>> arriving_;  ///< by flat: the timing of that gather
  std::vector<Launch> launches_;                       ///< since the step began; only the last ones are kept
  std::vector<BucketTiming> timings_;                  ///< of the last step
  std::vector<TimedTransfer> device_timings_;
};

}  // namespace weft
