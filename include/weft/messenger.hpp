#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "weft/buffer.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Messages with tags between the ranks of a communicator, as MPI's: a receive takes the next message that has its tag
/// and comes from its rank, or from any; messages that nothing waits for yet are kept aside, and do not hold up those
/// behind them. Sends and receives make progress whatever order they are waited for in, or when nobody waits.
///
/// Takes no part in the order of collectives. While ranks use a Messenger the communicator's own send(), recv(),
/// send_recv() and split() are not to be used: they would meet its messages. Every member may be called from any
/// thread; emulated links do not slow messages down.
///
/// Short messages (about 2 KiB) leave at once. A thread is started for operations that nobody waits for; where MPI lets
/// only the main thread call it, they fail. A rank that dies, leaves or is later than the time limit makes pending and
/// later operations throw Error{peer_lost|timeout}, as on the communicator. A receive from any rank fails when some
/// rank has died, or all others have left.
class Messenger {
 public:
  static constexpr int kAnyRank = -1;

  /// One send or receive. Copies share it. Every member may be called from any thread.
  class Request {
   public:
    /// True once complete, whether it succeeded or failed. Makes no progress by itself.
    [[nodiscard]] bool test() const noexcept;
    /// Blocks until complete; rethrows the operation's Error. May be called repeatedly.
    void wait() const;
    /// Like wait() but gives up after `limit`: false when it is still under way.
    [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit) const;
    /// The failure, or null while under way or on success.
    [[nodiscard]] std::exception_ptr error() const noexcept;
    /// A completed receive's sender.
    [[nodiscard]] int source() const noexcept;
    /// Calls `continuation` once complete, on whichever thread completes it or, when it is already, on this one. Must
    /// neither throw nor wait.
    void then(std::function<void()> continuation) const;

   private:
    friend class Messenger;
    class State;
    explicit Request(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  /// Local. The communicator's memory lives on as long as this.
  explicit Messenger(Communicator& communicator);
  /// Local: pending operations fail with Error{aborted}. What comes once no receive is pending goes to the
  /// communicator's next Messenger. A message of more than about 2 KiB that has begun, and is not through, ends
  /// halfway: its other end waits for the rest until it is late, and what would follow that message between the two
  /// throws Error{aborted}.
  ~Messenger();
  Messenger(Messenger const&) = delete;
  Messenger& operator=(Messenger const&) = delete;

  /// Sends to rank `to` (this rank too). Completes once the buffer may be reused. `timeout`: see
  /// is_timeout(); the communicator's when absent. @throws Error{invalid_argument} before anything is sent.
  Request send(ConstBufferView const& buffer, int to, int tag = 0,
               std::optional<std::chrono::milliseconds> timeout = {});

  /// Receives from rank `from`, or kAnyRank. A message of another size or type than the buffer's fails the receive with
  /// Error{mismatch} and is dropped; the sender is not told, and later messages come through.
  Request receive(BufferView const& buffer, int from, int tag = 0,
                  std::optional<std::chrono::milliseconds> timeout = {});

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace weft
