// Point-to-point operations.
#include "run.hpp"

namespace weft::torch_backend {
namespace {

constexpr Operation kSend{c10d::OpType::SEND, "send", "weft:send"};
constexpr Operation kRecv{c10d::OpType::RECV, "recv", "weft:recv"};
constexpr Operation kRecvAny{c10d::OpType::RECVANYSOURCE, "recv", "weft:recvAnySource"};

BufferView message(std::vector<at::Tensor> const& tensors, Place const& place) {
  TORCH_CHECK_VALUE(tensors.size() == 1, place, ": expects one tensor, not ", tensors.size());
  return view(tensors[0], place, "tensor");
}

}  // namespace

std::shared_ptr<Messenger> ProcessGroupWeft::messenger(Operation const& what) {
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
    if (coalesced_) return coalesced_->add(tensors, request);
    return c10::make_intrusive<MessageWork>(getRank(), what, tensors, std::vector{request}, aftermath_,
                                            at::hasCallbacks());
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::send(Tensors& tensors, int to, int tag) {
  auto const buffer = message(tensors, place(kSend));
  return post(kSend, tensors, [&](Messenger& messenger) { return messenger.send(buffer, to, tag, options_->timeout); });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::recv(Tensors& tensors, int from, int tag) {
  auto const buffer = message(tensors, place(kRecv));
  TORCH_CHECK_VALUE(from >= 0 && from < getSize(), place(kRecv), ": ", from, " is not a rank; ranks are 0 to ",
                    getSize() - 1);
  return post(kRecv, tensors,
              [&](Messenger& messenger) { return messenger.receive(buffer, from, tag, options_->timeout); });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::recvAnysource(Tensors& tensors, int tag) {
  auto const buffer = message(tensors, place(kRecvAny));
  return post(kRecvAny, tensors, [&](Messenger& messenger) {
    return messenger.receive(buffer, Messenger::kAnyRank, tag, options_->timeout);
  });
}

}  // namespace weft::torch_backend
