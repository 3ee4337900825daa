// Point-to-point operations.
#include "interpreter_exit.hpp"
#include "run.hpp"

namespace weft::torch_backend {
namespace {

constexpr Operation kSend{c10d::OpType::SEND, "send", "weft:send"};
constexpr Operation kRecv{c10d::OpType::RECV, "recv", "weft:recv"};
constexpr Operation kRecvAny{c10d::OpType::RECVANYSOURCE, "recv", "weft:recvAnySource"};

/// Messages carry elements in row-major order, whatever the strides on either side.
std::vector<at::Tensor> to_send(std::vector<at::Tensor> const& tensors, Place const& place) {
  check_reachable(only(tensors, place), place, "tensor");
  return {tensors[0].contiguous()};
}

BufferView where_to_receive(std::vector<at::Tensor> const& tensors, Place const& place) {
  auto const& tensor = only(tensors, place);
  check_reachable(tensor, place, "tensor");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), place, ": tensor of shape ", tensor.sizes(), " and strides ",
                    tensor.strides(),
                    " is not in row-major order, in which messages come; receive into "
                    "torch.empty(shape) and copy_() from there");
  return view(tensor, place, "tensor");
}

}  // namespace

std::shared_ptr<Messenger> ProcessGroupWeft::messenger(Operation const& what) {
  describe();
  std::lock_guard const lock(state_mutex_);
  if (messenger_) return messenger_;
  C10_THROW_ERROR(DistBackendError, c10::str(place(what), ": this process group was shut down; make a new one"));
}

template <typename Issue>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::post(Operation const& what, Tensors const& tensors, Issue const& issue) {
  auto const messenger = this->messenger(what);
  try {
    OverlapRecorder::Watch watch(overlap_recorder(), what.name, tensors, {}, std::nullopt);
    Messenger::Request const request = issue(*messenger);
    watch.issued(request);
    // The memory must stay even if the Work is dropped, or if another coalesced call fails first.
    if (!request.test()) request.then([kept = released_before_exit(tensors)] {});
    // Other threads may change coalesced_ meanwhile; without calls_mutex_ only the thread that coalesces may look at
    // it.
    if (coalescing_.load() == std::this_thread::get_id()) return coalesced_->add(tensors, request);
    return c10::make_intrusive<MessageWork>(getRank(), what, tensors, std::vector{request}, aftermath_,
                                            at::hasCallbacks());
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

template <typename Issue>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::post_on_gpu(Operation const& what, c10::Device device,
                                                           Tensors const& tensors, int peer, Issue const& issue) {
  How const how{.async = true, .timeout = options_->timeout};
  auto work = run_on_gpu(
      what, how, device, tensors, tensors,
      [&](Communicator& /*group*/, CollectiveOptions const& options) { return issue(line_to(peer, what), options); },
      Nothing{});
  if (work) static_cast<GpuWork&>(*work).set_source(peer);
  return work;
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::send(Tensors& tensors, int to, int tag) {
  auto const sent = to_send(tensors, place(kSend));
  auto const buffer = view(sent[0], place(kSend), "tensor");
  if (auto const device = gpu_of(tensors, {})) {
    return post_on_gpu(kSend, *device, sent, to, [&](Line const& line, CollectiveOptions const& options) {
      return line.communicator.send(buffer, line.peer, options);
    });
  }
  return post(kSend, sent, [&](Messenger& messenger) { return messenger.send(buffer, to, tag, options_->timeout); });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::recv(Tensors& tensors, int from, int tag) {
  auto const buffer = where_to_receive(tensors, place(kRecv));
  TORCH_CHECK_VALUE(from >= 0 && from < getSize(), place(kRecv), ": ", from, " is not a rank; ranks are 0 to ",
                    getSize() - 1);
  if (auto const device = gpu_of(tensors, {})) {
    return post_on_gpu(kRecv, *device, tensors, from, [&](Line const& line, CollectiveOptions const& options) {
      return line.communicator.recv(buffer, line.peer, options);
    });
  }
  return post(kRecv, tensors,
              [&](Messenger& messenger) { return messenger.receive(buffer, from, tag, options_->timeout); });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::recvAnysource(Tensors& tensors, int tag) {
  auto const buffer = where_to_receive(tensors, place(kRecvAny));
  TORCH_CHECK_NOT_IMPLEMENTED(!gpu_of(tensors, {}), place(kRecvAny),
                              ": on a GPU there are no messages from any rank, as NCCL has none; name the rank");
  return post(kRecvAny, tensors, [&](Messenger& messenger) {
    return messenger.receive(buffer, Messenger::kAnyRank, tag, options_->timeout);
  });
}

}  // namespace weft::torch_backend
