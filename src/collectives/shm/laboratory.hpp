#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "collectives/shm/cost_model.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

/// One algorithm at one size, and its best times so far.
struct Experiment {
  static constexpr auto kUnknown = std::numeric_limits<double>::max();

  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::staged;
  std::size_t bytes = 0;
  Place place = Place::symmetric;
  double call_ns = kUnknown;
  double loop_ns = kUnknown;  ///< of the loop around it
  int times = 0;              ///< that it was timed

  [[nodiscard]] bool is_known() const noexcept { return call_ns < kUnknown; }
  [[nodiscard]] Sample call() const noexcept { return {bytes, call_ns}; }
};

/// Times experiments on a backend made for that, in buffers of its own: `symmetric_bytes` each in memory that all ranks
/// reach, and private ones (see get_private()). The backend's feeds hold `feed_bytes`. All ranks make the same calls;
/// rank 0's clock counts.
class Laboratory {
 public:
  Laboratory(ShmBackend& backend, std::size_t symmetric_bytes, std::size_t feed_bytes,
             std::chrono::milliseconds timeout);

  /// Call it before experiments of `bytes` in private memory. Returns whether every rank has that much; what the
  /// private buffers held before is lost.
  [[nodiscard]] bool get_private(std::size_t bytes);

  /// Whether all go on: rank 0 decides.
  bool agree(bool go_on);

  /// Times an experiment once more, and keeps times that are less than before.
  void time(Experiment& one);
  /// What the loop pays for the call: its time less that of the same loop without the call, as last known. At least
  /// `synchronisation_ns`, the time to come together, whatever the noise of that difference is.
  [[nodiscard]] Sample loop(Experiment const& one, double synchronisation_ns) const noexcept;

  double time_synchronisation();
  /// Nanoseconds of the smallest call with data, which takes a line from each rank to each other.
  double time_line();

 private:
  /// Where an experiment's data lies.
  struct Buffers {
    std::shared_ptr<void> send;
    std::shared_ptr<void> recv;
  };

  /// Bytes of an experiment that this rank sends and receives, from the beginning of their buffers.
  struct Extent {
    std::size_t sent;
    std::size_t received;
  };

  struct Times {
    double loop_ns;
    double call_ns;
  };

  /// A loop without its call.
  struct Idle {
    double ns = Experiment::kUnknown;
    int times = 0;  ///< that it was timed
  };

  void meet();
  Call next(Operation operation, std::size_t count, DataType dtype);
  [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes);
  [[nodiscard]] Buffers const& buffers_of(Experiment const& one) const noexcept;
  [[nodiscard]] void* result_of(Experiment const& one) const noexcept;
  [[nodiscard]] Extent extent_of(Experiment const& one) const noexcept;
  /// Bytes of a rank's part of a buffer that all ranks share out.
  [[nodiscard]] std::size_t part_of(Experiment const& one) const noexcept;
  void run(Experiment const& one);
  static void write(void* data, std::size_t bytes, int value) noexcept;
  void read(void const* data, std::size_t bytes) noexcept;
  /// Makes as many calls as it takes to fill the feeds.
  void go_round_feeds(Experiment const& one);
  double time_loop(Experiment const& one, bool idle);
  Times time_calls(Experiment const& one, bool idle);
  void time_long(Experiment& one);
  void time_idle(Experiment& one);

  ShmBackend& backend_;
  std::size_t feed_bytes_;
  std::chrono::milliseconds timeout_;
  std::uint64_t calls_ = 0;
  std::uint64_t sum_ = 0;
  Buffers symmetric_;
  Buffers private_;
  std::size_t private_bytes_ = 0;  ///< of each, on every rank
  std::map<std::tuple<Collective, std::size_t, Place>, Idle> idle_;
};

}  // namespace weft::shm
