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

/// Collectives of device memory over NCCL. A call costs the host NCCL's call, one event, the Work, and a few lines of
/// shared memory in which the ranks tell what they called: a Watch compares, and looks after the rest.
class NcclBackend final : public DeviceBackend {
 public:
  /// Collective over setup.bootstrap.
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
  [[nodiscard]] cuda::CudaFunctions const& cuda() const noexcept { return *communicator_->libraries().cuda; }
  [[nodiscard]] cuda::CudaStream& stream_for(Stream const* stream) noexcept;
  /// What comes on `on` follows the calls so far, whatever stream they are on; whether it is under capture.
  bool follow_last(cuda::CudaStream& on);
  /// @throws Error{unsupported} naming the call.
  void require_supported(Call const& call) const;
  /// Numbers a collective and tells the others of it.
  void announce(Call& call, std::chrono::steady_clock::time_point now);
  /// `issue(issuer)` makes NCCL's calls; a failure is everybody's.
  template <typename Issue>
  void enqueue(cuda::CudaStream& on, Call const& call, Issue&& issue);
  /// The Work of what was just enqueued.
  std::shared_ptr<cuda::CudaWork> mark(cuda::CudaStream& on, bool captured, std::chrono::steady_clock::time_point now);
  [[nodiscard]] std::shared_ptr<Work::State> hand_out(std::shared_ptr<cuda::CudaWork> work, Stream const* stream);
  [[nodiscard]] ncclWindow_t register_window(void* memory, std::size_t bytes, Bootstrap& bootstrap);

  std::shared_ptr<NcclCommunicator> communicator_;
  Device const device_;
  int const rank_;
  int const size_;
  Reproducibility const reproducibility_;
  std::chrono::milliseconds const timeout_;
  bool const explains_;
  Stream own_stream_;
  std::shared_ptr<void> scratch_;  // device memory of barriers
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
  unsigned long long capture_ = 0;  // that of the call which is being made; 0: none
};

}  // namespace weft::nccl
