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

ProcessGroupWeft::WorkHandle ProcessGroupWeft::post(Operation const& what, Tensors const& tensors,
                                                    Messenger::Request const& request) {
  if (coalesced_) return coalesced_->add(tensors, request);
  return c10::make_intrusive<MessageWork>(getRank(), what, tensors, std::vector{request}, aftermath_,
                                          at::hasCallbacks());
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::send(Tensors& tensors, int to, int tag) {
  auto const buffer = message(tensors, place(kSend));
  try {
    return post(kSend, tensors, messenger(kSend)->send(buffer, to, tag, options_->timeout));
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::recv(Tensors& tensors, int from, int tag) {
  auto const buffer = message(tensors, place(kRecv));
  TORCH_CHECK_VALUE(from >= 0 && from < getSize(), place(kRecv), ": ", from, " is not a rank; ranks are 0 to ",
                    getSize() - 1);
  try {
    return post(kRecv, tensors, messenger(kRecv)->receive(buffer, from, tag, options_->timeout));
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::recvAnysource(Tensors& tensors, int tag) {
  auto const buffer = message(tensors, place(kRecvAny));
  try {
    return post(kRecvAny, tensors, messenger(kRecvAny)->receive(buffer, Messenger::kAnyRank, tag, options_->timeout));
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

}  // namespace weft::torch_backend
