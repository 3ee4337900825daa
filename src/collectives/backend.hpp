#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "collectives/call.hpp"
#include "collectives/message.hpp"
#include "collectives/peer_state.hpp"
#include "collectives/survivors.hpp"
#include "collectives/transit.hpp"
#include "weft/error.hpp"

namespace weft {

class MergedCall;

/// Which calls are worth merging, in bytes of a unit (the whole buffer, or one rank's part). Equal on all ranks.
struct MergeLimits {
  std::size_t each = 0;      ///< larger calls run by themselves
  std::size_t together = 0;  ///< more become another merged call
};

/// The seam between the checked call and what moves the bytes. Calls arrive one at a time, in sequence order, already
/// validated on this rank; each blocks until this rank may reuse its buffers. In-place rules and failures are
/// weft/communicator.hpp's. Operations with unequal parts (…_v) arrive at the function of their kind.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual void all_reduce(Call const& call) = 0;
  virtual void reduce_scatter(Call const& call) = 0;
  virtual void all_gather(Call const& call) = 0;
  virtual void broadcast(Call const& call) = 0;
  virtual void reduce(Call const& call) = 0;
  virtual void gather(Call const& call) = 0;
  virtual void scatter(Call const& call) = 0;
  virtual void all_to_all(Call const& call) = 0;
  virtual void scan(Call const& call) = 0;  ///< exscan too
  virtual void barrier(Call const& call) = 0;

  /// Several calls of one kind as one. All ranks merge alike.
  virtual void merged(MergedCall const& calls) = 0;
  [[nodiscard]] virtual MergeLimits merge_limits() const noexcept = 0;

  /// Completes all messages, in any order. Unlike collectives these may run at the same time as other calls, on several
  /// threads; `call` is for time limits and reports.
  virtual void transfer(Call const& call, std::span<Message const> messages) = 0;

  /// Begins a message that its caller moves on, by advance(), whenever it likes. Messages of one direction to or from
  /// one peer begin in the order of their numbers, and the next begins when the one before is through. `call` must
  /// outlast it.
  [[nodiscard]] virtual std::unique_ptr<Transit> begin(Call const& call, Message const& message) = 0;
  /// Calls `ready`, which advances messages, until it returns true, at least every 50 ms; pauses in between where that
  /// makes sense. Throws failures of the communicator; knows no time limit, and does not look for lost ranks.
  virtual void await(Call const& call, std::function<bool()> const& ready) = 0;
  /// Throws a failure of the communicator that is known here already. The thread that makes calls.
  virtual void throw_if_failed() = 0;
  /// Whether `rank` is still there, as far as it is known. What it did before it went may still be on its way. Any
  /// thread.
  [[nodiscard]] virtual PeerState peer_state(int rank) = 0;

  /// Zero-filled memory of call.bytes() bytes on every rank, released with its last owner.
  virtual std::shared_ptr<void> allocate(Call const& call) = 0;

  /// Fails every rank's pending and later calls. Any thread, any time.
  virtual void abort(std::string const& reason) noexcept = 0;
  /// The same for a failure that was found elsewhere.
  virtual void fail(ErrorCode code, std::string const& reason) noexcept = 0;

  /// @throws Error{unsupported} where a lost rank ends the job, and there are no survivors().
  virtual void require_survivors() const;
  /// Collective among the ranks that are left of a communicator that has failed: who they are, and how they talk, over
  /// this back end, while it lives. No call is under way. @throws Error{timeout} naming one that did not come;
  /// Error{unsupported} where a lost rank ends the job.
  [[nodiscard]] virtual std::unique_ptr<Survivors> survivors(std::chrono::milliseconds timeout);
};

}  // namespace weft
