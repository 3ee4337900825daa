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

/// A rank that vanishes.
struct Loss {
  int rank = 0;
  Time at{};
};

struct Options {
  std::uint64_t seed = 1;  ///< of the delays and of the order of what happens at the same time
  /// Every message arrives up to so much later, by chance: messages also overtake each other.
  Time jitter{};
  /// What happens at the same moment happens in an order by chance.
  bool shuffle = false;
  /// Longer messages leave only once the receiver has asked for them.
  std::size_t eager_bytes = std::numeric_limits<std::size_t>::max();
  double reduction_s_per_byte = 0;  ///< what Transport::reduced() takes
  bool carries_data = true;         ///< false: sizes alone, in buffers that lie in Transport::phantom()
  bool spoil_buffers = false;       ///< what is received into holds nonsense until it has come
  std::vector<Straggler> stragglers{};
  std::vector<Loss> losses{};
  Time detection = std::chrono::milliseconds(1);  ///< how long it takes until all know of a lost rank
  bool record = false;                            ///< keep Outcome::trace
  std::shared_ptr<StackPool> stacks{};            ///< of earlier runs; null: new ones
};

/// Something that happened.
struct TraceEvent {
  enum class Kind : std::uint8_t { send, recv, arrival, end, loss, failure };

  Time at{};
  Kind kind = Kind::send;
  int rank = 0;
  int peer = -1;
  std::uint64_t number = 0;  ///< of messages from one to the other, from 0
  std::uint64_t bytes = 0;

  friend bool operator==(TraceEvent const&, TraceEvent const&) = default;
};

struct Outcome {
  Time elapsed{};                          ///< until the last rank ended
  std::vector<Time> ended{};               ///< each rank
  std::vector<std::exception_ptr> errors;  ///< each rank's, null where its body returned or it was lost
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t fingerprint = 0;  ///< of all events: equal for equal runs
  std::vector<TraceEvent> trace{};

  /// Throws the first rank's error, where there is one.
  void rethrow() const;
};

/// Runs `body` once for every rank of the network, each in a fiber of its own, on a virtual clock: one thread, nothing
/// real is waited for. Equal arguments give equal runs, whatever the machine.
///
/// Inside, std::chrono::steady_clock's place is taken by the virtual clock, from 0 on, for all that the library times,
/// and Stream::cpu() gives streams on it: what is enqueued there runs beside the body.
///
/// A body that throws makes all other ranks' calls throw Error{aborted} naming it. Where nobody can go on any more, all
/// calls throw Error{timeout} that says who waits for whom. Where only streams and Works of single ranks wait for one
/// another, which no call can be told, the program ends.
/// @throws Error{invalid_argument} for options that cannot be
[[nodiscard]] Outcome simulate(Topology const& topology, Options const& options,
                               std::function<void(Transport&)> const& body);

/// The virtual time that has passed for a rank of a simulation, inside its body. `transport` is that of the body.
[[nodiscard]] Time now(Transport const& transport);
/// Lets virtual time pass for the body, or the stream's task, that calls: what computation takes.
void pass(Transport& transport, Time duration);
/// How many times as long a straggler takes; 1 for everybody else.
[[nodiscard]] double slowness(Transport const& transport);

}  // namespace weft::sim
