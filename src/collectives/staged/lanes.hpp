#pragma once

#include <array>
#include <memory>

#include "collectives/staged/pinned.hpp"
#include "collectives/staged/staged_factory.hpp"
#include "collectives/staged/staging.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/cuda_work.hpp"
#include "runtime/cuda/event_pool.hpp"

namespace weft::staged {

/// A stream for communication: what is enqueued on it goes before what ordinary streams do.
[[nodiscard]] Stream high_priority_stream(Options const& options);

/// What one rank's steps go along: a stream for each direction of copies, one for what GPUs do without the host, and
/// how they wait for one another and for the host. The thread that makes calls.
struct Lanes {
  /// @throws Error{unsupported} where streams cannot wait for the host; Error{out_of_memory|system}
  explicit Lanes(Options const& options);
  /// Waits for what is on the lanes.
  ~Lanes();
  Lanes(Lanes const&) = delete;
  Lanes& operator=(Lanes const&) = delete;

  using Event = cuda::EventPool::Lease;

  void record(Event const& event, cuda::CudaStream const& on) const;
  void wait(cuda::CudaStream const& on, Event const& event) const;
  void copy(Copies const& copies, cudaMemcpyKind kind, cuda::CudaStream const& on) const;
  /// What comes now follows what is on `on`, and the jobs so far: calls keep their order on any stream, and slots are
  /// used again. Where the job goes `inside`, the host is told when its turn has come.
  void begin(cuda::CudaStream const& on, std::uint32_t first, bool inside) const;
  // Steps of a job, numbered `number` among all, `step` among its own, whose slot they use.
  void go_out(std::size_t step, std::uint32_t number, Copies const& copies) const;
  void come_in(std::size_t step, std::uint32_t number, Copies const& copies) const;
  /// All of the step is through when `on`, the last that has a part in it, is.
  void land(std::size_t step, std::uint32_t number, cuda::CudaStream const& on) const;
  /// Waits until nothing is under way on the lanes, but not long; whether that is so.
  [[nodiscard]] bool come_to_rest() const noexcept;
  /// `to` goes on when `from` is here.
  void hand_over(Event const& event, cuda::CudaStream const& from, cuda::CudaStream const& to) const {
    record(event, from);
    wait(to, event);
  }

  cuda::CudaFunctions const& cuda;
  Signals signals;
  PinnedPool pool;
  cuda::EventPool events;
  cuda::WorkPool works;
  Event begun;                                ///< the caller's stream is where the call is
  std::array<Event, Staging::kSlots> copied;  ///< of each slot the last step: it is there
  std::array<Event, Staging::kSlots> landed;  ///< and its result is back
  std::array<Event, Staging::kSlots> ready;   ///< the GPUs are through with what comes before the copy out
  std::array<Event, Staging::kSlots> back;    ///< the copy in is, where the GPUs have something to do with it
  std::shared_ptr<cuda::CudaStream> out;
  std::shared_ptr<cuda::CudaStream> in;
  std::shared_ptr<cuda::CudaStream> among;  ///< what GPUs do without the host; null where that is nothing
};

}  // namespace weft::staged
