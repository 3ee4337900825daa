// How a process group's calls are enqueued on a GPU.
#include <algorithm>

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "run.hpp"
#include "store_bootstrap.hpp"

namespace weft::torch_backend {
namespace {

bool is_message(Operation const& what) noexcept {
  return what.type == c10d::OpType::SEND || what.type == c10d::OpType::RECV;
}

}  // namespace

std::shared_ptr<GpuStreams> const& ProcessGroupWeft::gpu(Operation const& what, c10::Device device) {
  if (!gpu_ || gpu_->device() != device) {
    TORCH_CHECK_VALUE(!gpu_, place(what), ": its tensors are on ", device, ", but this group serves ", gpu_->device(),
                      "; each rank uses one GPU: call torch.cuda.set_device(), or make another group");
    gpu_ = std::make_shared<GpuStreams>(device, place(what));
  }
  return gpu_;
}

GpuWork::Call ProcessGroupWeft::begin_on_gpu(Operation const& what, How const& how, c10::Device device) {
  auto const& gpu = this->gpu(what, device);
  // A single message concerns two ranks only, so it cannot connect all ranks.
  if (coalesced_ || !is_message(what)) connect(what, device);
  ++sequence_;
  auto const own = how.async || coalesced_ != nullptr;
  if (own) gpu->follow_current();
  auto const from = gpu->current();
  GpuWork::Call call{gpu, from, own ? gpu->communication() : from};
  call.holds_up = what.type == c10d::OpType::BARRIER;
  call.sequence = sequence_;
  return call;
}

CollectiveOptions ProcessGroupWeft::options_on_gpu(GpuWork::Call const& call, How const& how) {
  CollectiveOptions options;
  options.timeout = how.timeout.count() > 0 ? std::min(how.timeout, kLongestTimeout) : options_->timeout;
  options.stream = call.streams->weft(call.on);
  if (!coalesced_) return options;
  coalesced_->open(*communicator_, options, call.streams);
  options.stream.reset();  // the group's
  return options;
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::end_on_gpu(Operation const& what, How const& how, GpuWork::Call call,
                                                          at::TensorList inputs, at::TensorList results) {
  auto const profiled = at::hasCallbacks();
  // A call on the current stream needs no Work to wait for, except a barrier.
  if (!how.async && !profiled && !call.holds_up) return nullptr;
  return c10::make_intrusive<GpuWork>(getRank(), what, std::move(call), results, inputs, aftermath_, profiled);
}

ProcessGroupWeft::WorkHandle ProcessGroupWeft::end_coalescing_on_gpu(Operation const& what, Coalesced& coalesced) {
  TORCH_CHECK_VALUE(coalesced.messages.empty(), place(what),
                    ": messages of CPU tensors cannot be coalesced with calls on a GPU; use one device");
  GpuWork::Call call{coalesced.gpu, coalesced.gpu->current(), coalesced.gpu->communication()};
  call.sequence = sequence_;
  call.lands = !coalesced.lands.empty();
  try {
    call.core = coalesced.group->end();
    OnStream const there(call.on);
    for (auto const& land : coalesced.lands) land();
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
  return end_on_gpu(what, {true, {}}, std::move(call), coalesced.tensors, coalesced.results);
}

void ProcessGroupWeft::connect(Operation const& what, c10::Device device) {
  if (connected_) return;
  try {
    communicator(what).connect(weft_device(device));
    connected_ = true;
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

void ProcessGroupWeft::eagerConnectSingleDevice(at::Device device) {
  constexpr Operation kWhat{c10d::OpType::UNKNOWN, "connect", "weft:connect"};
  std::lock_guard const lock(calls_mutex_);
  static_cast<void>(gpu(kWhat, device));
  connect(kWhat, device);
}

ProcessGroupWeft::Line ProcessGroupWeft::line_to(int peer, Operation const& what) {
  auto const known = pairs_.find(peer);
  if (known == pairs_.end() && (connected_ || peer == getRank())) return {*communicator_, peer};
  bool const first = getRank() < peer;
  if (known != pairs_.end()) return {*known->second, first ? 1 : 0};
  TORCH_CHECK_VALUE(peer >= 0 && peer < getSize(), place(what), ": ", peer, " is not a rank; ranks are 0 to ",
                    getSize() - 1);
  auto const low = std::min(getRank(), peer);
  auto const high = std::max(getRank(), peer);
  auto const name = c10::str("messages of ranks ", low, " and ", high);
  auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
  auto options = communicator_->options();
  options.name = options.name.empty() ? name : options.name + ", " + name;
  options.small_staging = true;
  auto bootstrap =
      std::make_shared<StoreBootstrap>(std::move(store), first ? 0 : 1, 2, options_->timeout, options.name);
  auto pair = Communicator::create(std::move(bootstrap), options);
  pair.connect(weft_device(gpu_->device()));
  auto const kept = std::make_shared<Communicator>(std::move(pair));
  std::lock_guard const lock(state_mutex_);
  pairs_.emplace(peer, kept);
  return {*kept, first ? 1 : 0};
}

std::optional<c10::Device> ProcessGroupWeft::device_of_barrier(c10d::BarrierOptions const& opts) {
  if (auto const bound = getBoundDeviceId(); opts.device_ids.empty() && bound && bound->is_cuda()) return bound;
  std::lock_guard const lock(calls_mutex_);
  // Programs may name a GPU even where there is none; then the ranks meet on the host, as with gloo.
  bool const there =
      !opts.device_ids.empty() && (gpu_ || opts.device_ids[0] < at::detail::getCUDAHooks().deviceCount());
  if (there) return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(opts.device_ids[0]));
  if (gpu_) return gpu_->device();
  return std::nullopt;
}

}  // namespace weft::torch_backend
