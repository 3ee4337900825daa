#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/message.hpp"
#include "collectives/peer_state.hpp"
#include "runtime/work_state.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"
#include "weft/stream.hpp"

namespace weft {

class DeviceFactory;

/// Moves the bytes of validated calls whose buffers are in device memory; NCCL and staging in host memory implement it.
///
/// Unlike a Backend's, its calls are enqueued on a stream of the device, and nobody waits. They take effect in the
/// order in which they are made, whichever streams they go to. One thread at a time, except what says "any thread".
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  [[nodiscard]] virtual Device device() const noexcept = 0;

  /// Enqueues a collective on `stream`. Without one (null) it enqueues on its own stream, waits, and returns null.
  /// @throws Error{unsupported} before anything is sent.
  virtual std::shared_ptr<Work::State> run(Call& call, Stream const* stream) = 0;

  /// Several calls and messages that run as one; `transfer` gives the messages' time limit, and reports name it.
  struct Batch {
    std::span<Call> calls;
    std::span<Message const> messages;
    Call const& transfer;
  };
  virtual std::shared_ptr<Work::State> run(Batch const& batch, Stream const* stream) = 0;

  /// Collective: zero-filled device memory of call.bytes() bytes, registered with the communicator where possible.
  /// `bootstrap`: the same ranks, over host memory.
  [[nodiscard]] virtual std::shared_ptr<void> allocate(Call const& call, Bootstrap& bootstrap) = 0;
  /// Why allocate()'s memory is not registered; empty when it is, or before the first allocate().
  [[nodiscard]] virtual std::string why_not_symmetric() const = 0;

  /// Makes a stream for communication: its work takes precedence over that of ordinary streams.
  [[nodiscard]] virtual Stream make_stream() const = 0;
  /// The stream of programs that name none: CUDA's legacy default stream.
  [[nodiscard]] virtual Stream default_stream() const = 0;

  /// Collective, for Communicator::split(): returns what makes the back end of this rank's new communicator; null where
  /// it becomes part of none.
  [[nodiscard]] virtual std::unique_ptr<DeviceFactory> split(int color, int key) = 0;
  /// Collective over the ranks that are left, all but `lost`: ends this back end, and returns what makes one like it
  /// for them.
  [[nodiscard]] virtual std::unique_ptr<DeviceFactory> renew(std::vector<int> const& lost) = 0;

  /// The failure that has ended all of its calls; null while there is none. Any thread.
  [[nodiscard]] virtual std::exception_ptr failure() const noexcept = 0;
  /// Fails every rank's pending and later calls. Any thread, any time.
  virtual void fail(ErrorCode code, std::string const& reason) noexcept = 0;
};

/// What a communicator gives its device back end.
struct DeviceSetup {
  Bootstrap& bootstrap;  ///< during creation only
  CommunicatorOptions const& options;
  std::function<PeerState(int rank)> peer_state;  ///< any thread
};

/// Makes one device back end: create() is called once.
class DeviceFactory {
 public:
  virtual ~DeviceFactory() = default;
  /// Collective over setup.bootstrap. Throws on every rank, or none.
  [[nodiscard]] virtual std::unique_ptr<DeviceBackend> create(DeviceSetup const& setup) = 0;
};

/// The factory for memory on `device`, by what this library was built with.
/// @throws Error{unsupported} where it was built without support for such devices.
[[nodiscard]] std::unique_ptr<DeviceFactory> device_factory(Device device, Config const& config);

}  // namespace weft
