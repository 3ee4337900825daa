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

/// A stream for communication: the GPU prefers its work to that of ordinary streams.
[[nodiscard]] Stream high_priority_stream(Options const& options);

/// The streams of one rank's steps: one for each direction of copies and one for what GPUs do without the host, with
/// the events and signals by which they wait for one another and for the host. Used by the thread that makes calls
/// only.
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
  /// Begins a job, whose first step has number `first`. What is enqueued on the lanes from now on waits for what is on
  /// `on` and for all earlier jobs: calls keep their order on any stream, and slots are reused. If the job goes
  /// `inside`, the GPU tells the host when it gets here.
  void begin(cuda::CudaStream const& on, std::uint32_t first, bool inside) const;
  // Below, `number` counts the steps of all jobs, `step` those of the job; `step` chooses the slot.
  void go_out(std::size_t step, std::uint32_t number, Copies const& copies) const;
  void come_in(std::size_t step, std::uint32_t number, Copies const& copies) const;
  /// Marks the end of the step on `on`, the last stream that takes part in it.
  void land(std::size_t step, std::uint32_t number, cuda::CudaStream const& on) const;
  /// Waits briefly until nothing is under way on the lanes. Returns whether that was reached.
  [[nodiscard]] bool come_to_rest() const noexcept;
  /// Makes `to` wait for what is on `from` now.
  void hand_over(Event const& event, cuda::CudaStream const& from, cuda::CudaStream const& to) const {
    record(event, from);
    wait(to, event);
  }

  cuda::CudaFunctions const& cuda;
  Signals signals;
  PinnedPool pool;
  cuda::EventPool events;
  cuda::WorkPool works;
  Event begun;                                ///< the caller's stream has come to the call
  std::array<Event, Staging::kSlots> copied;  ///< per slot, its latest step: the copy out is done
  std::array<Event, Staging::kSlots> landed;  ///< its result is on the device
  std::array<Event, Staging::kSlots> ready;   ///< the GPUs have done what comes before the copy out
  std::array<Event, Staging::kSlots> back;    ///< the copy in is done, where the GPUs work on its data afterwards
  std::shared_ptr<cuda::CudaStream> out;
  std::shared_ptr<cuda::CudaStream> in;
  std::shared_ptr<cuda::CudaStream> among;  ///< for what GPUs do without the host; null without an Inside
};

}  // namespace weft::staged
