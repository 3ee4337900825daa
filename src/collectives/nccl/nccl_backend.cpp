#include "collectives/nccl/nccl_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/nccl/issuer.hpp"
#include "collectives/nccl/nccl_factory.hpp"
#include "collectives/outcome.hpp"
#include "runtime/cuda/check.hpp"

namespace weft::nccl {
namespace {

using Clock = std::chrono::steady_clock;

Stream communication_stream(Libraries const& libraries) {
  return Stream(std::make_shared<cuda::CudaStream>(
      cuda::StreamOptions{.device = libraries.device, .high_priority = true}, *libraries.cuda));
}

std::shared_ptr<void> allocate_scratch(Libraries const& libraries) {
  auto const& cuda = *libraries.cuda;
  cuda::DeviceGuard const guard(libraries.device, cuda);
  void* memory = nullptr;
  cuda::check(cuda, cuda.malloc(&memory, 256), "cudaMalloc");
  return {memory, [&cuda](void* pointer) { static_cast<void>(cuda.free(pointer)); }};
}

}  // namespace

/// Collective. Succeeds on every rank, or throws on every rank.
NcclBackend::Own NcclBackend::make_own(Libraries const& libraries, Bootstrap& bootstrap) {
  std::optional<Own> made;
  Outcome mine;
  try {
    made.emplace(Own{communication_stream(libraries), allocate_scratch(libraries)});
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  agree(bootstrap, mine);
  return std::move(*made);
}

NcclBackend::NcclBackend(std::shared_ptr<NcclCommunicator> communicator, DeviceSetup const& setup)
    : NcclBackend(communicator, setup, make_own(communicator->libraries(), setup.bootstrap)) {}

NcclBackend::NcclBackend(std::shared_ptr<NcclCommunicator> communicator, DeviceSetup const& setup, Own own)
    : communicator_(std::move(communicator)),
      device_{DeviceType::cuda, communicator_->libraries().device},
      rank_(setup.bootstrap.rank()),
      size_(setup.bootstrap.size()),
      reproducibility_(setup.options.reproducibility),
      timeout_(setup.options.config->timeout),
      explains_(setup.options.config->explain && rank_ == 0),
      own_stream_(std::move(own.stream)),
      scratch_(std::move(own.scratch)),
      works_(device_.index, cuda()),
      control_(Control::create(setup.bootstrap, *setup.options.config)),
      recorder_(FlightRecorder::create(setup.bootstrap, *setup.options.config,
                                       setup.options.name.empty() ? "nccl" : setup.options.name + "/nccl")),
      watch_(std::make_unique<Watch>(
          Watch::Setup{&cuda(), communicator_, control_.get(), recorder_.get(), setup.peer_state})) {}

// The watch's destructor waits for pending calls; afterwards nothing looks at NCCL any more.
NcclBackend::~NcclBackend() {
  last_ = {};
  watch_.reset();
}

cuda::CudaStream& NcclBackend::stream_for(Stream const* stream) noexcept {
  auto& on = *cuda::as_cuda(stream == nullptr ? own_stream_ : *stream);
  on.launch_deferred();
  return on;
}

bool NcclBackend::follow_last(cuda::CudaStream& on) {
  auto status = cudaStreamCaptureStatusNone;
  capture_ = 0;
  cuda::DefaultStreamGuard const guard(on);
  cuda::check(cuda(), cuda().stream_capture(on.handle(), &status, &capture_), "cudaStreamGetCaptureInfo");
  bool const captured = status == cudaStreamCaptureStatusActive;
  if (!captured) capture_ = 0;
  // Between a captured call and an uncaptured one, the order is decided by when the graph is launched.
  bool const elsewhere = last_.work && last_.stream != on.handle() && last_.capture == capture_;
  if (elsewhere && (captured || !last_.work->state.done())) {
    cuda::check(cuda(), cuda().stream_wait_event(on.handle(), last_.work->completion.event(), 0),
                "cudaStreamWaitEvent");
  }
  return captured;
}

void NcclBackend::announce(Call& call, Clock::time_point now) {
  call.sequence = ++issued_;
  call.on_stream = true;
  publish(control_->ledger(), call, rank_, size_);
  control_->publish(call.sequence, call.contract);
  recorder_->enqueue(call, now);
  recorder_->prepare(call.sequence + 1);
}

void NcclBackend::require_supported(Call const& call) const {
  try {
    check_supported(call, reproducibility_);
  } catch (Error const& error) {
    auto named = call;
    named.sequence = issued_ + 1;
    throw Error(error.code(),
                fmt::format("rank {}: {} on {}: {}", rank_, describe(named), to_string(device_), error.what()));
  }
}

template <typename Issue>
void NcclBackend::enqueue(cuda::CudaStream& on, Call const& call, Issue&& issue) {
  try {
    NcclCommunicator::Use const use(*communicator_);
    Issuer issuer(*communicator_, use.handle(), on, rank_, size_, scratch_.get());
    issue(issuer);
    issuer.finish();
  } catch (Error const& error) {
    watch_->throw_if_failed();  // the failure that stopped NCCL explains more than NCCL's own error
    auto const why = fmt::format("rank {}: {} on {}: {}", rank_, describe(call), to_string(device_), error.what());
    watch_->fail(error.code(), why);
    watch_->throw_if_failed();
    throw Error(error.code(), why);
  }
}

std::shared_ptr<cuda::CudaWork> NcclBackend::mark(cuda::CudaStream& on, bool captured, Clock::time_point now) {
  auto work = works_.make(on, watch_->failure(), captured);
  work->state.enqueue(now);
  last_ = {work, on.handle(), capture_};
  return work;
}

std::shared_ptr<Work::State> NcclBackend::hand_out(std::shared_ptr<cuda::CudaWork> work, Stream const* stream) {
  if (work->completion.is_captured()) work->state.complete_once();
  auto* const state = &work->state;
  if (stream != nullptr) return {std::move(work), state};
  state->wait();
  if (auto const error = state->error()) std::rethrow_exception(error);
  return nullptr;
}

std::shared_ptr<Work::State> NcclBackend::run(Call& call, Stream const* stream) {
  watch_->throw_if_failed();
  require_supported(call);
  auto& on = stream_for(stream);
  bool const captured = follow_last(on);
  auto const now = Clock::now();  // read once: reading the clock costs more than most of what follows
  announce(call, now);
  enqueue(on, call, [&](Issuer& issuer) { issuer.issue(call); });
  auto work = mark(on, captured, now);
  watch_->add(call, work);
  return hand_out(std::move(work), stream);
}

std::shared_ptr<Work::State> NcclBackend::run(Batch const& batch, Stream const* stream) {
  watch_->throw_if_failed();
  for (auto const& call : batch.calls) require_supported(call);
  auto& on = stream_for(stream);
  bool const captured = follow_last(on);
  auto const now = Clock::now();
  for (auto& call : batch.calls) announce(call, now);
  for (auto const& message : batch.messages) publish(control_->ledger(), message, rank_);
  Call transfer = batch.transfer;
  if (!batch.messages.empty()) transfer.sequence = ++transfers_;
  auto const& first = batch.calls.empty() ? transfer : batch.calls.front();
  enqueue(on, first, [&](Issuer& issuer) {
    issuer.begin_group();
    for (auto const& call : batch.calls) issuer.issue(call);
    for (auto const& message : batch.messages) issuer.issue(message);
    issuer.end_group();
  });
  auto work = mark(on, captured, now);
  for (auto const& call : batch.calls) watch_->add(call, work);
  if (!batch.messages.empty()) watch_->add(transfer, batch.messages, work);
  return hand_out(std::move(work), stream);
}

Stream NcclBackend::make_stream() const {
  return communication_stream(communicator_->libraries());
}

Stream NcclBackend::default_stream() const {
  return Stream(std::make_shared<cuda::CudaStream>(nullptr, device_.index, cuda()));
}

std::unique_ptr<DeviceFactory> NcclBackend::split(int color, int key) {
  watch_->throw_if_failed();
  try {
    return factory_of(communicator_->split(color, key));
  } catch (Error const& error) {
    watch_->throw_if_failed();  // the failure that stopped NCCL explains more than NCCL's own error
    watch_->fail(error.code(),
                 fmt::format("rank {}: split(color {}) on {}: {}", rank_, color, to_string(device_), error.what()));
    watch_->throw_if_failed();
    throw;
  }
}

std::unique_ptr<DeviceFactory> NcclBackend::renew(std::vector<int> const& lost) {
  fail(ErrorCode::aborted, "another communicator takes the place of this one");  // no effect if it has failed already
  watch_->await_dropped();
  return factory_of_successor(communicator_, lost);
}

void NcclBackend::fail(ErrorCode code, std::string const& reason) noexcept {
  watch_->fail(code, code == ErrorCode::aborted ? fmt::format("aborted by rank {}: {}", rank_, reason) : reason);
}

}  // namespace weft::nccl
