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
  std::size_t together = 0;  ///< most bytes of one merged call; further calls begin another
};

/// Moves the bytes of validated calls. Shared memory, UCX, MPI, and the hierarchy of hosts each implement it.
///
/// Calls arrive one at a time, in sequence order, already validated on this rank. Each blocks until this rank may reuse
/// its buffers. The rules for in-place buffers and for failures are those of weft/communicator.hpp. An operation with
/// unequal parts (…_v) arrives at the function of its kind: all_gather_v at all_gather().
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

  /// Runs several calls of one kind as one. All ranks merge the same calls.
  virtual void merged(MergedCall const& calls) = 0;
  [[nodiscard]] virtual MergeLimits merge_limits() const noexcept = 0;

  /// Completes all messages, in any order. Unlike collectives, transfers may run at the same time as other calls, on
  /// several threads. `call` gives the time limit, and reports name it.
  virtual void transfer(Call const& call, std::span<Message const> messages) = 0;

  /// Begins a message that its caller moves on by Transit::advance(). Messages in one direction to or from one peer
  /// begin in the order of their numbers; the next may begin only when the one before is through. `call` must outlive
  /// the Transit.
  [[nodiscard]] virtual std::unique_ptr<Transit> begin(Call const& call, Message const& message) = 0;
  /// Calls `ready`, which advances messages, until it returns true: at least every 50 ms, with pauses in between where
  /// that makes sense. Has no time limit, and does not look for lost ranks. @throws failures of the communicator
  virtual void await(Call const& call, std::function<bool()> const& ready) = 0;
  /// Throws the communicator's failure if this rank already knows of one. For the thread that makes calls.
  virtual void throw_if_failed() = 0;
  /// Whether `rank` is still there, as far as this rank knows. What it sent before it went may still be on its way. Any
  /// thread.
  [[nodiscard]] virtual PeerState peer_state(int rank) = 0;

  /// Collective: zero-filled memory of call.bytes() bytes for every rank, released with its last owner.
  virtual std::shared_ptr<void> allocate(Call const& call) = 0;

  /// Fails every rank's pending and later calls. Any thread, any time.
  virtual void abort(std::string const& reason) noexcept = 0;
  /// As abort(), for a failure with this code that was found elsewhere.
  virtual void fail(ErrorCode code, std::string const& reason) noexcept = 0;

  /// @throws Error{unsupported} where survivors() cannot work, because a lost rank ends the job.
  virtual void require_survivors() const;
  /// Collective among the ranks that are left of a communicator that has failed, while no call is under way. Returns
  /// which ranks those are, as a bootstrap over this back end, which must outlive it.
  /// @throws Error{timeout} naming a rank that did not come; Error{unsupported} where a lost rank ends the job.
  [[nodiscard]] virtual std::unique_ptr<Survivors> survivors(std::chrono::milliseconds timeout);
};

}  // namespace weft
