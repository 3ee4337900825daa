#pragma once

#include <functional>
#include <utility>

#include "collectives/nccl/nccl_communicator.hpp"
#include "common/cases.hpp"
#include "weft/reduce_op.hpp"
#include "weft/stream.hpp"

namespace weft::perf {

/// The same operations made of NCCL's own calls, enqueued on one stream, for comparison with Weft. Like any program
/// with a non-blocking communicator, they wait until NCCL has finished issuing a call before making the next one.
class NcclCalls {
 public:
  /// `communicator` must outlive it and the calls.
  NcclCalls(nccl::NcclCommunicator& communicator, Stream const& stream);

  /// A callable that enqueues operation `what` on `on`. @throws Error{unsupported} if NCCL lacks the reduction or type.
  [[nodiscard]] std::function<void()> call(Case const& what, Operands const& on, ReduceOp op, Place place) const;
  /// A callable that makes `calls` such calls in one NCCL group.
  [[nodiscard]] std::function<void()> grouped(std::function<void()> const& one, int calls) const;

 private:
  void check(ncclResult_t result, char const* call) const {
    if (result == ncclInProgress) in_progress_ = true;
    if (result != ncclSuccess) [[unlikely]]
      nccl::check(nccl_, result, call, handle_);
  }
  /// Makes the calls of `body`, with exclusive use of the communicator, and waits if NCCL asks for it. Within another
  /// body it only makes the calls.
  template <typename Body>
  void issue(Body const& body) const {
    if (issuing_) return body();
    nccl::NcclCommunicator::Use const use(communicator_);
    issuing_ = true;
    try {
      body();
      settle();
    } catch (...) {
      issuing_ = false;
      throw;
    }
    issuing_ = false;
  }
  /// Within issue(), outside of groups.
  void settle() const {
    if (std::exchange(in_progress_, false)) communicator_.settle(ncclInProgress, "NCCL");
  }
  [[nodiscard]] std::function<void()> reducing_call(Op what, Operands const& on, ReduceOp op, Place place) const;
  [[nodiscard]] std::function<void()> moving_call(Op what, Operands const& on, Place place) const;
  void exchange(BufferView send, int to, BufferView recv, int from) const;
  void hypercube(Operands const& on, Place place) const;

  nccl::NcclCommunicator& communicator_;
  nccl::NcclFunctions const& nccl_;
  ncclComm_t handle_;
  Stream stream_;
  cudaStream_t on_;
  mutable bool issuing_ = false;
  mutable bool in_progress_ = false;
};

}  // namespace weft::perf
