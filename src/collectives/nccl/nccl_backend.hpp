#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/device_backend.hpp"
#include "collectives/explainer.hpp"
#include "collectives/flight/flight_recorder.hpp"
#include "collectives/nccl/control.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "collectives/nccl/watch.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/cuda_work.hpp"

namespace weft::nccl {

class Issuer;

/// Collectives on device memory through NCCL. On the host a call costs NCCL's own call, one event, the Work, and a few
/// lines of shared memory in which each rank tells what it called. A Watch compares these, and looks for failures.
class NcclBackend final : public DeviceBackend {
 public:
  /// Collective over setup.bootstrap. Throws on every rank, or none.
  NcclBackend(std::shared_ptr<NcclCommunicator> communicator, DeviceSetup const& setup);
  ~NcclBackend() override;
  NcclBackend(NcclBackend const&) = delete;
  NcclBackend& operator=(NcclBackend const&) = delete;

  [[nodiscard]] Device device() const noexcept override { return device_; }
  std::shared_ptr<Work::State> run(Call& call, Stream const* stream) override;
  std::shared_ptr<Work::State> run(Batch const& batch, Stream const* stream) override;
  [[nodiscard]] std::shared_ptr<void> allocate(Call const& call, Bootstrap& bootstrap) override;
  [[nodiscard]] std::string why_not_symmetric() const override { return why_not_symmetric_; }
  [[nodiscard]] Stream make_stream() const override;
  [[nodiscard]] Stream default_stream() const override;
  [[nodiscard]] std::unique_ptr<DeviceFactory> split(int color, int key) override;
  [[nodiscard]] std::unique_ptr<DeviceFactory> renew(std::vector<int> const& lost) override;
  [[nodiscard]] std::exception_ptr failure() const noexcept override { return watch_->failure()->get(); }
  void fail(ErrorCode code, std::string const& reason) noexcept override;

  [[nodiscard]] NcclCommunicator& communicator() noexcept { return *communicator_; }

 private:
  /// Resources of this rank whose allocation can fail on one rank alone.
  struct Own {
    Stream stream;
    std::shared_ptr<void> scratch;
  };
  [[nodiscard]] static Own make_own(Libraries const& libraries, Bootstrap& bootstrap);
  NcclBackend(std::shared_ptr<NcclCommunicator> communicator, DeviceSetup const& setup, Own own);

  [[nodiscard]] cuda::CudaFunctions const& cuda() const noexcept { return *communicator_->libraries().cuda; }
  [[nodiscard]] cuda::CudaStream& stream_for(Stream const* stream) noexcept;
  /// Makes what is enqueued on `on` from now on follow all calls so far, whichever streams those use. Returns whether
  /// `on` is being captured.
  bool follow_last(cuda::CudaStream& on);
  /// @throws Error{unsupported} naming the call.
  void require_supported(Call const& call) const;
  /// Numbers a collective and tells the other ranks about it.
  void announce(Call& call, std::chrono::steady_clock::time_point now);
  /// Has `issue(issuer)` make NCCL's calls; if that fails, all ranks fail.
  template <typename Issue>
  void enqueue(cuda::CudaStream& on, Call const& call, Issue&& issue);
  /// Makes the Work of what was just enqueued.
  std::shared_ptr<cuda::CudaWork> mark(cuda::CudaStream& on, bool captured, std::chrono::steady_clock::time_point now);
  [[nodiscard]] std::shared_ptr<Work::State> hand_out(std::shared_ptr<cuda::CudaWork> work, Stream const* stream);
  /// Fails and aborts the communicator after a registration that NCCL did not finish in time.
  void end_unfinished(std::string const& why);
  void throw_if_stopped();
  [[nodiscard]] ncclWindow_t register_window(void* memory, std::size_t bytes, Bootstrap& bootstrap);

  std::shared_ptr<NcclCommunicator> communicator_;
  Device const device_;
  int const rank_;
  int const size_;
  Reproducibility const reproducibility_;
  std::chrono::milliseconds const timeout_;
  bool const explains_;
  Stream own_stream_;
  std::shared_ptr<void> scratch_;  // device memory that barriers reduce
  cuda::WorkPool works_;
  std::unique_ptr<Control> control_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::unique_ptr<Watch> watch_;  // uses the above

  std::uint64_t issued_ = 0;
  std::uint64_t transfers_ = 0;
  std::string why_not_symmetric_;
  struct Last {
    std::shared_ptr<cuda::CudaWork> work;
    cudaStream_t stream = nullptr;
    unsigned long long capture = 0;
  } last_;
  unsigned long long capture_ = 0;  // id of the capture that the current call is part of; 0: none
};

}  // namespace weft::nccl
