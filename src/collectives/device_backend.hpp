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

/// The seam between the checked call and what moves the bytes of device memory. Unlike a Backend's, its calls are
/// enqueued on a stream of the device, and nobody waits. They take effect in the order in which they are made, whatever
/// streams they go to. One thread at a time, except what says "any thread".
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  [[nodiscard]] virtual Device device() const noexcept = 0;

  /// Enqueues a collective on `stream`; null: on the back end's own, and waits for it, and returns null.
  /// @throws Error{unsupported} before anything is sent.
  virtual std::shared_ptr<Work::State> run(Call& call, Stream const* stream) = 0;

  /// The same of several calls and messages as one; `transfer` is for the messages' time limit and reports.
  struct Batch {
    std::span<Call> calls;
    std::span<Message const> messages;
    Call const& transfer;
  };
  virtual std::shared_ptr<Work::State> run(Batch const& batch, Stream const* stream) = 0;

  /// Collective: zero-filled device memory of call.bytes(), registered with the communicator where that can be had.
  /// `bootstrap`: the ranks, over host memory.
  [[nodiscard]] virtual std::shared_ptr<void> allocate(Call const& call, Bootstrap& bootstrap) = 0;
  /// Why allocate()'s memory is not registered; empty when it is, or nobody asked yet.
  [[nodiscard]] virtual std::string why_not_symmetric() const = 0;

  /// A stream for communication: what is enqueued on it goes before what ordinary streams do.
  [[nodiscard]] virtual Stream make_stream() const = 0;
  /// The one that programs use who name none: CUDA's legacy default stream.
  [[nodiscard]] virtual Stream default_stream() const = 0;

  /// Collective, see Communicator::split(): makes the back end of the communicator that this rank becomes part of; null
  /// where it becomes part of none.
  [[nodiscard]] virtual std::unique_ptr<DeviceFactory> split(int color, int key) = 0;
  /// Collective, ends this one: makes one like it over the same ranks but `lost`; the others are all there.
  [[nodiscard]] virtual std::unique_ptr<DeviceFactory> renew(std::vector<int> const& lost) = 0;

  /// The failure that ends all of its calls; null without one. Any thread.
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

/// Makes a device back end. Once.
class DeviceFactory {
 public:
  virtual ~DeviceFactory() = default;
  /// Collective over setup.bootstrap. Throws on every rank, or none.
  [[nodiscard]] virtual std::unique_ptr<DeviceBackend> create(DeviceSetup const& setup) = 0;
};

/// For memory on `device`, through what this library was built with.
/// @throws Error{unsupported} where that is nothing.
[[nodiscard]] std::unique_ptr<DeviceFactory> device_factory(Device device, Config const& config);

}  // namespace weft
