#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "aftermath.hpp"
#include "coalesced.hpp"
#include "device.hpp"
#include "gpu_work.hpp"
#include "monitored_barrier.hpp"
#include "tensor_pool.hpp"
#include "tensors.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"
#include "weft/messenger.hpp"
#include "weft/stream.hpp"
#include "work.hpp"

namespace weft::torch_backend {

/// torch.distributed's back end "weft": one Communicator for one process group.
///
/// Calls that torch waits for at once (asyncOp false) run on the calling thread; the others on one stream of the
/// group's, started by the first of them. Any thread may call; calls of one group run one at a time, in the order they
/// were made. Functions and their arguments are c10d::Backend's.
///
/// Calls of tensors on a GPU are enqueued, and no function waits for the GPU but barrier(): on torch's current stream
/// where torch waits at once, else on one of the group's own that waits for it. One GPU for each rank.
class ProcessGroupWeft final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds limit) : c10d::Backend::Options("weft", limit) {}
  };

  /// Collective over the group's ranks, which meet through `store`.
  [[nodiscard]] static c10::intrusive_ptr<ProcessGroupWeft> make(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                                 int size, c10::intrusive_ptr<Options> options);
  /// For make().
  ProcessGroupWeft(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~ProcessGroupWeft() override;

  const std::string getBackendName() const override { return "weft"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  bool supportsSplitting() const override { return true; }
  /// Collective over this group's `ranks`, which become the new group, in that order; null on the others.
  c10::intrusive_ptr<c10d::Backend> split(c10::intrusive_ptr<c10d::Store> const& store, std::vector<int> const& ranks,
                                          c10::intrusive_ptr<c10d::Backend::Options> const& opts) override;

  /// Collective: makes the group ready for tensors on `device`; the first collective with some does it otherwise.
  void eagerConnectSingleDevice(at::Device device) override;

  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  /// Collective: a flat tensor of `size` elements in memory that all ranks see; on a GPU in what NCCL gives out for its
  /// fastest algorithms. Its memory is used again once it is freed; a rank that holds more tensors of a size than all
  /// have allocated together gets ordinary memory, as does what is recorded as a CUDA graph.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  /// Collective: a communicator of the same ranks, for calls that must not meet this group's.
  [[nodiscard]] Communicator duplicate();

  /// Collective: all ranks' recorded calls, and when they computed, as one Perfetto file, which rank 0 writes.
  void write_trace(std::string const& path);

  /// Every rank counts its own calls from 0: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;

  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkHandle = c10::intrusive_ptr<c10d::Work>;

  WorkHandle broadcast(Tensors& tensors, c10d::BroadcastOptions const& opts) override;
  WorkHandle allreduce(Tensors& tensors, c10d::AllreduceOptions const& opts) override;
  WorkHandle allreduce_sparse(Tensors& tensors, c10d::AllreduceOptions const& opts) override;
  WorkHandle allreduce_coalesced(Tensors& tensors, c10d::AllreduceCoalescedOptions const& opts) override;
  WorkHandle reduce(Tensors& tensors, c10d::ReduceOptions const& opts) override;
  WorkHandle allgather(TensorLists& outputs, Tensors& inputs, c10d::AllgatherOptions const& opts) override;
  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input, c10d::AllgatherOptions const& opts) override;
  WorkHandle allgather_coalesced(TensorLists& outputs, Tensors& inputs, c10d::AllgatherOptions const& opts) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             c10d::AllgatherOptions const& opts) override;
  WorkHandle gather(TensorLists& outputs, Tensors& inputs, c10d::GatherOptions const& opts) override;
  WorkHandle scatter(Tensors& outputs, TensorLists& inputs, c10d::ScatterOptions const& opts) override;
  WorkHandle reduce_scatter(Tensors& outputs, TensorLists& inputs, c10d::ReduceScatterOptions const& opts) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  c10d::ReduceScatterOptions const& opts) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             c10d::ReduceScatterOptions const& opts) override;
  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                           std::vector<int64_t>& input_splits, c10d::AllToAllOptions const& opts) override;
  WorkHandle alltoall(Tensors& outputs, Tensors& inputs, c10d::AllToAllOptions const& opts) override;
  /// On a GPU where opts names one, or torch has bound the group to one, or the group has used one: then what was
  /// enqueued there before has run too.
  WorkHandle barrier(c10d::BarrierOptions const& opts) override;
  /// Errors of a rank that did not come name it, and leave the group as it was.
  void monitoredBarrier(c10d::BarrierOptions const& opts, bool wait_all_ranks) override;
  WorkHandle send(Tensors& tensors, int to, int tag) override;
  WorkHandle recv(Tensors& tensors, int from, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;

 private:
  struct How {
    bool async;
    std::chrono::milliseconds timeout;  ///< not above 0: the group's
  };
  [[nodiscard]] Place place(Operation const& what) const noexcept { return {getRank(), what.name}; }
  [[nodiscard]] bool is_parents() const;
  void leave_to_parent() noexcept;
  /// Tells errors what the program calls this group, which torch sets after making it, by a function it does not let
  /// one override. What runs calls comes by here first.
  void describe();
  [[nodiscard]] Communicator& communicator(Operation const& what);
  [[nodiscard]] Stream& stream();
  [[nodiscard]] CollectiveOptions collective_options(How const& how);

  /// Runs `issue(communicator, options)`, which makes the call and returns its weft::Work, then `land()`, which puts
  /// its results in place. `inputs` and `results` are kept alive meanwhile.
  template <typename Issue, typename Land>
  WorkHandle run(Operation const& what, How const& how, at::TensorList inputs, at::TensorList results, Issue&& issue,
                 Land&& land);
  template <typename Issue>
  WorkHandle run(Operation const& what, How const& how, at::TensorList inputs, at::TensorList results, Issue&& issue);
  /// run() of `issue(communicator, buffers, options)` on `tensors` where they are, or on copies in row-major order.
  template <typename Issue>
  WorkHandle run_on_wholes(Operation const& what, How const& how, std::vector<at::Tensor> const& tensors,
                           Issue&& issue);

  // The same on a GPU.
  [[nodiscard]] static std::optional<c10::Device> gpu_of(at::TensorList inputs, at::TensorList results) {
    auto const& tensors = results.empty() ? inputs : results;
    if (tensors.empty() || tensors[0].device().is_cpu()) return std::nullopt;
    return tensors[0].device();
  }
  template <typename Issue, typename Land>
  WorkHandle run_on_gpu(Operation const& what, How const& how, c10::Device device, at::TensorList inputs,
                        at::TensorList results, Issue&& issue, Land&& land);
  [[nodiscard]] GpuWork::Call begin_on_gpu(Operation const& what, How const& how, c10::Device device);
  [[nodiscard]] CollectiveOptions options_on_gpu(GpuWork::Call const& call, How const& how);
  [[nodiscard]] WorkHandle end_on_gpu(Operation const& what, How const& how, GpuWork::Call call, at::TensorList inputs,
                                      at::TensorList results);
  /// Collective, unless it has been.
  void connect(Operation const& what, c10::Device device);
  /// What carries messages to and from another rank: the group's communicator, or before that is connected one of the
  /// two, which meet for it. Once chosen it stays.
  struct Line {
    Communicator& communicator;
    int peer;  ///< in it
  };
  [[nodiscard]] Line line_to(int peer, Operation const& what);
  [[nodiscard]] WorkHandle end_coalescing_on_gpu(Operation const& what, Coalesced& coalesced);
  [[nodiscard]] std::shared_ptr<GpuStreams> const& gpu(Operation const& what, c10::Device device);
  [[nodiscard]] std::optional<c10::Device> device_of_barrier(c10d::BarrierOptions const& opts);

  [[nodiscard]] std::shared_ptr<Messenger> messenger(Operation const& what);
  /// `issue(messenger)` sends or receives.
  template <typename Issue>
  WorkHandle post(Operation const& what, Tensors const& tensors, Issue const& issue);
  /// The same on a GPU, where messages have no tags. `peer`: the other rank.
  template <typename Issue>
  WorkHandle post_on_gpu(Operation const& what, c10::Device device, Tensors const& tensors, int peer,
                         Issue const& issue);

  [[nodiscard]] c10::intrusive_ptr<ProcessGroupWork> make_work(Operation const& what, at::TensorList inputs,
                                                               at::TensorList results);
  void complete_later(c10::intrusive_ptr<ProcessGroupWork> work, weft::Work core, Stream& on,
                      std::function<void()> land);

  c10::intrusive_ptr<Options> const options_;
  c10::intrusive_ptr<c10d::Store> const store_;
  MonitoredBarrier monitored_barrier_;
  int const process_;  ///< that made the group: in a forked child nothing of it is touched
  std::shared_ptr<Aftermath> const aftermath_ = std::make_shared<Aftermath>();

  std::mutex calls_mutex_;           ///< held while a call is made, and throughout one that runs here
  std::shared_ptr<Stream> stream_;   ///< started by the first call that needs it; only this keeps it
  std::shared_ptr<GpuStreams> gpu_;  ///< made by the first call on a GPU
  bool connected_ = false;           ///< the communicator, with the GPU
  std::unique_ptr<Coalesced> coalesced_;
  std::shared_ptr<TensorPool> const pool_ = std::make_shared<TensorPool>();
  std::uint64_t sequence_ = 0;
  std::atomic<bool> described_{false};

  std::mutex state_mutex_;
  std::shared_ptr<Communicator> communicator_;          ///< null once shut down; changes under both mutexes
  std::shared_ptr<Messenger> messenger_;                ///< likewise
  std::map<int, std::shared_ptr<Communicator>> pairs_;  ///< for messages, by the other rank; likewise
};

/// Groups made from now on take as long as a link described by EmulatedLink::parse() would; none: as long as they do.
void emulate_link(std::optional<std::string> const& text);

}  // namespace weft::torch_backend
