// Point-to-point operations.
#include "run.hpp"

namespace weft::torch_backend {
namespace {

constexpr Operation kSend{c10d::OpType::SEND, "send", "weft:send"};
constexpr Operation kRecv{c10d::OpType::RECV, "recv", "weft:recv"};

BufferView message(std::vector<at::Tensor> const& tensors, Place const& place) {
  TORCH_CHECK_VALUE(tensors.size() == 1, place, ": expects one tensor, not ", tensors.size());
  return view(tensors[0], place, "tensor");
}

}  // namespace

ProcessGroupWeft::WorkHandle ProcessGroupWeft::send(Tensors& tensors, int to, int /*tag*/) {
  auto const buffer = message(tensors, place(kSend));
  return run_message(kSend, streams_.sends, "weft-send", tensors,
                     [&](Communicator& communicator, CollectiveOptions const& options) {
                       return communicator.send(buffer, to, options);
                     });
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::recv(Tensors& tensors, int from, int /*tag*/) {
  auto const buffer = message(tensors, place(kRecv));
  return run_message(kRecv, streams_.receives, "weft-recv", tensors,
                     [&](Communicator& communicator, CollectiveOptions const& options) {
                       return communicator.recv(buffer, from, options);
                     });
}

template <typename Issue>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::run_message(Operation const& what, std::optional<Stream>& which,
                                                           char const* name, Tensors const& tensors, Issue&& issue) {
  std::lock_guard const lock(calls_mutex_);
  auto& communicator = this->communicator(what);
  try {
    if (coalesced_) {
      issue(communicator, {});
      return coalesced_->add(tensors, tensors, [] {});
    }
    auto work = make_work(what, tensors, tensors);
    CollectiveOptions options;
    options.timeout = options_->timeout;
    options.stream = stream(which, name);
    complete_later(work, issue(communicator, options), *options.stream, nullptr);
    return work;
  } catch (Error const& error) {
    rethrow(error);
  }
}

}  // namespace weft::torch_backend
