#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/device_backend.hpp"
#include "collectives/explainer.hpp"
#include "collectives/flight/flight_recorder.hpp"
#include "collectives/staged/courier.hpp"
#include "collectives/staged/lanes.hpp"
#include "collectives/staged/staged_factory.hpp"
#include "collectives/staged/staging.hpp"
#include "runtime/cuda/cuda_stream.hpp"

namespace weft::staged {

/// Collectives on device memory through pinned host memory, where a host communicator does the collective: with any
/// host back end, and all operations, types and operators that it has. Data goes in chunks, so that one chunk is copied
/// out, one exchanged and one copied in at the same time (see Plan, Staging, Courier).
///
/// All copies of a call are enqueued when the call is made, on two streams of the back end's own. The caller's stream
/// waits for the last copy by an event; the host waits for nothing. A copy in waits on a word in pinned memory until
/// the host has exchanged its step. Where GPUs reach one another without the host (see Inside), their work is enqueued
/// between the copies, on a third stream. Nothing that such a wait depends on is enqueued behind it, so there is no
/// deadlock where streams share a hardware queue of the GPU.
class StagedBackend final : public DeviceBackend {
 public:
  /// Collective over setup.bootstrap.
  StagedBackend(Options const& options, DeviceSetup const& setup);
  /// Waits for pending calls, each of which ends within its time limit or fails, and for the GPU's copies.
  ~StagedBackend() override;
  StagedBackend(StagedBackend const&) = delete;
  StagedBackend& operator=(StagedBackend const&) = delete;

  [[nodiscard]] Device device() const noexcept override { return device_; }
  std::shared_ptr<Work::State> run(Call& call, Stream const* stream) override;
  std::shared_ptr<Work::State> run(Batch const& batch, Stream const* stream) override;
  [[nodiscard]] std::shared_ptr<void> allocate(Call const& call, Bootstrap& bootstrap) override;
  [[nodiscard]] std::string why_not_symmetric() const override;
  [[nodiscard]] Stream make_stream() const override;
  [[nodiscard]] Stream default_stream() const override;
  [[nodiscard]] std::unique_ptr<DeviceFactory> split(int color, int key) override;
  [[nodiscard]] std::unique_ptr<DeviceFactory> renew(std::vector<int> const& lost) override;
  [[nodiscard]] std::exception_ptr failure() const noexcept override { return courier_->failure(); }
  void fail(ErrorCode code, std::string const& reason) noexcept override;

 private:
  using Failure = std::shared_ptr<cuda::SharedFailure>;

  [[nodiscard]] std::string name() const { return options_.inside ? "hierarchical" : "staged"; }
  [[nodiscard]] cuda::CudaFunctions const& cuda() const noexcept { return *options_.cuda; }
  [[nodiscard]] cuda::CudaStream& stream_for(Stream const* stream);
  /// A graph's later launches would have no job for the courier. @throws Error{unsupported} if `on` is being captured.
  void refuse_capture(cuda::CudaStream const& on, Call const& call) const;
  /// Makes the failure of a Work.
  [[nodiscard]] Failure make_failure() const {
    return std::make_shared<cuda::SharedFailure>(inside_ ? inside_->told() : cuda::SharedFailure::Elsewhere());
  }
  [[nodiscard]] std::shared_ptr<Job> job_of(Call& call, Failure failure);
  [[nodiscard]] std::shared_ptr<Job> job_of(Batch const& batch, Failure failure);
  /// Enqueues the jobs on `on` as one Work.
  std::shared_ptr<Work::State> launch(std::vector<std::shared_ptr<Job>> const& jobs, cuda::CudaStream& on,
                                      Failure const& failure, bool waits);
  void enqueue(Job const& job, cuda::CudaStream& on);
  void go_out(Job const& job, std::size_t step);
  void come_in(Job const& job, std::size_t step);
  [[nodiscard]] std::unique_ptr<Plan> plan(Call const& call);
  void explain(Job const& job);

  Options const options_;
  Device const device_;
  int const rank_;
  int const size_;
  Stream own_stream_;  // for calls without a stream
  std::unique_ptr<Lanes> lanes_;
  Communicator host_;
  Staging staging_;
  std::unique_ptr<Inside> inside_;  // may be null; uses host_
  std::shared_ptr<FlightRecorder> recorder_;
  std::optional<Explainer> explainer_;
  std::unique_ptr<Courier> courier_;  // uses the above

  std::uint64_t issued_ = 0;
  std::uint64_t transfers_ = 0;
  std::uint32_t steps_ = 0;
};

}  // namespace weft::staged
