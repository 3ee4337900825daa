#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
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
/// Calls that torch waits for at once (asyncOp false) run on the calling thread. The others run on the group's stream,
/// which the first of them starts. Any thread may call; calls of one group run one at a time, in the order in which
/// they were made. Functions and their arguments are those of c10d::Backend.
///
/// Calls with tensors on a GPU are only enqueued; no function except barrier() waits for the GPU. If torch waits at
/// once, they go on torch's current stream, otherwise on a stream of the group's that waits for it. Each rank has one
/// GPU.
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
  /// Collective over this group's `ranks`, which become the new group, in that order; null on the other ranks.
  c10::intrusive_ptr<c10d::Backend> split(c10::intrusive_ptr<c10d::Store> const& store, std::vector<int> const& ranks,
                                          c10::intrusive_ptr<c10d::Backend::Options> const& opts) override;

  /// Collective: prepares the group for tensors on `device`; otherwise the first collective with such tensors does it.
  void eagerConnectSingleDevice(at::Device device) override;

  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  /// Collective: a flat tensor of `size` elements in memory that all ranks share; on a GPU, in memory that NCCL
  /// allocates for its fastest algorithms. The memory is reused once it is freed. A rank that holds more tensors of a
  /// size than all ranks have allocated together gets ordinary memory, and so do calls recorded in a CUDA graph.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  /// Collective: a communicator of the same ranks, for calls that must not mix with this group's.
  [[nodiscard]] Communicator duplicate();

  /// Collective: rank 0 writes a Perfetto file with all ranks' recorded calls and the times when they computed.
  void write_trace(std::string const& path);

  /// Does nothing: every rank counts its own calls from 0, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;

  /// Until endCoalescing(), collects the collectives of every thread, but messages of CPU tensors only of the calling
  /// thread.
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  /// Instead of endCoalescing(), after an exception: makes none of the collected collectives; messages go on by
  /// themselves.
  void drop_coalesced();

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
  /// On a GPU if opts names one, or torch has bound the group to one, or the group has used one: then everything
  /// enqueued there before has also run.
  WorkHandle barrier(c10d::BarrierOptions const& opts) override;
  /// An error names the ranks that did not come, and leaves the group usable.
  void monitoredBarrier(c10d::BarrierOptions const& opts, bool wait_all_ranks) override;
  WorkHandle send(Tensors& tensors, int to, int tag) override;
  WorkHandle recv(Tensors& tensors, int from, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;

 private:
  struct How {
    bool async;
    std::chrono::milliseconds timeout;  ///< 0 or less: the group's time limit
  };
  [[nodiscard]] Place place(Operation const& what) const noexcept { return {getRank(), what.name}; }
  [[nodiscard]] bool is_parents() const;
  void leave_to_parent() noexcept;
  /// Passes the program's name for this group on to errors. torch sets that name after making the group, by a function
  /// that cannot be overridden, so everything that runs calls calls this first.
  void describe();
  [[nodiscard]] Communicator& communicator(Operation const& what);
  [[nodiscard]] Stream& stream();
  [[nodiscard]] CollectiveOptions collective_options(How const& how);

  /// Runs `issue(communicator, options)`, which makes the call and returns its weft::Work, then `land()`, which puts
  /// the results in place. Keeps `inputs` and `results` alive meanwhile.
  template <typename Issue, typename Land>
  WorkHandle run(Operation const& what, How const& how, at::TensorList inputs, at::TensorList results, Issue&& issue,
                 Land&& land);
  template <typename Issue>
  WorkHandle run(Operation const& what, How const& how, at::TensorList inputs, at::TensorList results, Issue&& issue);
  /// As run(), with `issue(communicator, buffers, options)` on `tensors` in place, or on copies in row-major order.
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
  /// Collective: connects the communicator with the GPU; does nothing if it is connected already.
  void connect(Operation const& what, c10::Device device);
  /// The communicator that carries messages to and from another rank: the group's, or, as long as that is not
  /// connected, a communicator of the two ranks alone. Once chosen, it stays.
  struct Line {
    Communicator& communicator;
    int peer;  ///< the other rank's number in it
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
  int const process_;  ///< the process that made the group; a forked child does not touch the group
  std::shared_ptr<Aftermath> const aftermath_ = std::make_shared<Aftermath>();

  std::mutex calls_mutex_;           ///< held while a call is made; for a call on the calling thread, until it ends
  std::shared_ptr<Stream> stream_;   ///< started by the first call that needs it; only this keeps it
  std::shared_ptr<GpuStreams> gpu_;  ///< made by the first call on a GPU
  bool connected_ = false;           ///< whether the communicator is connected with the GPU
  std::unique_ptr<Coalesced> coalesced_;
  std::atomic<std::thread::id> coalescing_{};  ///< from startCoalescing() to endCoalescing(): the thread that called it
  std::shared_ptr<TensorPool> const pool_ = std::make_shared<TensorPool>();
  std::uint64_t sequence_ = 0;
  std::atomic<bool> described_{false};

  std::mutex state_mutex_;
  std::shared_ptr<Communicator> communicator_;          ///< null once shut down; changes under both mutexes
  std::shared_ptr<Messenger> messenger_;                ///< likewise
  std::map<int, std::shared_ptr<Communicator>> pairs_;  ///< for messages, by the other rank; likewise
};

/// Groups made from now on are as slow as the link that `text` describes (see EmulatedLink::parse()); none: no
/// emulation.
void emulate_link(std::optional<std::string> const& text);

}  // namespace weft::torch_backend
