#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "aftermath.hpp"
#include "coalesced.hpp"
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

  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  /// Collective: a flat tensor of `size` elements in memory that all ranks see. Its memory is used again once it is
  /// freed; a rank that holds more tensors of a size than all have allocated together gets ordinary memory.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

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

  [[nodiscard]] std::shared_ptr<Messenger> messenger(Operation const& what);
  /// `issue(messenger)` sends or receives.
  template <typename Issue>
  WorkHandle post(Operation const& what, Tensors const& tensors, Issue const& issue);

  [[nodiscard]] c10::intrusive_ptr<ProcessGroupWork> make_work(Operation const& what, at::TensorList inputs,
                                                               at::TensorList results);
  void complete_later(c10::intrusive_ptr<ProcessGroupWork> work, weft::Work core, Stream& on,
                      std::function<void()> land);

  c10::intrusive_ptr<Options> const options_;
  c10::intrusive_ptr<c10d::Store> const store_;
  MonitoredBarrier monitored_barrier_;
  int const process_;  ///< that made the group: in a forked child nothing of it is touched
  std::shared_ptr<Aftermath> const aftermath_ = std::make_shared<Aftermath>();

  std::mutex calls_mutex_;          ///< held while a call is made, and throughout one that runs here
  std::shared_ptr<Stream> stream_;  ///< started by the first call that needs it; only this keeps it
  std::unique_ptr<Coalesced> coalesced_;
  std::shared_ptr<TensorPool> const pool_ = std::make_shared<TensorPool>();
  std::uint64_t sequence_ = 0;

  std::mutex state_mutex_;
  std::shared_ptr<Communicator> communicator_;  ///< null once shut down; changes under both mutexes
  std::shared_ptr<Messenger> messenger_;        ///< likewise
};

}  // namespace weft::torch_backend
