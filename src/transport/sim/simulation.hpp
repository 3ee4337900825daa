#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "transport/sim/fiber.hpp"
#include "transport/sim/topology.hpp"
#include "transport/sim/virtual_time.hpp"
#include "transport/transport.hpp"

namespace weft::sim {

/// A rank that vanishes at some time.
struct Loss {
  int rank = 0;
  Time at{};
};

struct Options {
  std::uint64_t seed = 1;  ///< of the random delays, and of the random order of events at the same time
  /// Every message arrives later by a random time of up to this, so messages may overtake each other.
  Time jitter{};
  /// Events at the same time happen in random order.
  bool shuffle = false;
  /// Longer messages leave only once the receive has begun.
  std::size_t eager_bytes = std::numeric_limits<std::size_t>::max();
  double reduction_s_per_byte = 0;  ///< the time that Transport::reduced() takes
  bool carries_data = true;         ///< false: only sizes move, with buffers in Transport::phantom()
  bool spoil_buffers = false;  ///< buffers hold nonsense from the beginning of a receive until its message has come
  std::vector<Straggler> stragglers{};
  std::vector<Loss> losses{};
  Time detection = std::chrono::milliseconds(1);  ///< the time until all know of a lost rank
  bool record = false;                            ///< fill Outcome::trace
  std::shared_ptr<StackPool> stacks{};            ///< stacks of earlier runs, to be used again; null: new ones
};

/// An event of the simulation, as Outcome::trace keeps it.
struct TraceEvent {
  enum class Kind : std::uint8_t { send, recv, arrival, end, loss, failure };

  Time at{};
  Kind kind = Kind::send;
  int rank = 0;
  int peer = -1;
  std::uint64_t number = 0;  ///< among the messages from one rank to the other, from 0
  std::uint64_t bytes = 0;

  friend bool operator==(TraceEvent const&, TraceEvent const&) = default;
};

struct Outcome {
  Time elapsed{};                          ///< when the last rank ended that was not lost
  std::vector<Time> ended{};               ///< when each rank ended
  std::vector<std::exception_ptr> errors;  ///< by rank; null where its body returned, or where it was lost
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t fingerprint = 0;  ///< of all events: equal for equal runs
  std::vector<TraceEvent> trace{};

  /// Throws the error of the first rank that has one; errors that only tell of another rank's failure come last.
  void rethrow() const;
};

/// Runs `body` once for every rank of the network on a virtual clock, each rank in a fiber of its own, all on the
/// calling thread. Nothing waits for real time. Equal arguments give equal runs, whatever the machine.
///
/// Inside, the virtual clock, which starts at 0, takes the place of std::chrono::steady_clock for all that the library
/// times. Stream::cpu() gives streams on that clock, whose tasks run beside the body.
///
/// A body that throws makes all other ranks' calls throw Error{aborted} naming its rank. Where no rank can go on, all
/// calls throw Error{timeout} that says which rank waits for which. Where only streams and Works of single ranks wait
/// for one another, there is no call to throw from, and the program ends.
/// @throws Error{invalid_argument} for impossible options
[[nodiscard]] Outcome simulate(Topology const& topology, Options const& options,
                               std::function<void(Transport&)> const& body);

/// The virtual time that has passed. To be called inside a body, with the body's transport.
[[nodiscard]] Time now(Transport const& transport);
/// Lets virtual time pass for the body or the stream's task that calls, as computation would.
void pass(Transport& transport, Time duration);
/// How many times as long this rank takes: the factor of a straggler, 1 for other ranks.
[[nodiscard]] double slowness(Transport const& transport);

}  // namespace weft::sim
