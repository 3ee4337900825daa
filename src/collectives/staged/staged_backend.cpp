#include "collectives/staged/staged_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/outcome.hpp"
#include "collectives/staged/flat_plan.hpp"
#include "collectives/still_in_use.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_work.hpp"
#include "runtime/cuda/memory_pool.hpp"
#include "weft/memory.hpp"

namespace weft::staged {
namespace {

/// Makes the host communicator that calls go through. Only the courier uses it.
Communicator create_host(DeviceSetup const& setup) {
  auto with = setup.options;
  with.emulated_link.reset();
  with.progress = nullptr;
  with.heap = nullptr;
  with.small_staging = true;         // its large buffers are symmetric memory
  with.config->flight_recorder = 0;  // the device's calls are recorded instead
  with.name.clear();
  std::shared_ptr<Bootstrap> const ranks(std::shared_ptr<void>(), &setup.bootstrap);  // for the time of this
  return Communicator::create(ranks, with);
}

/// Collective. Succeeds on every rank, or throws on every rank.
std::unique_ptr<Lanes> make_lanes(Options const& options, Bootstrap& bootstrap) {
  std::unique_ptr<Lanes> lanes;
  Outcome mine;
  try {
    lanes = std::make_unique<Lanes>(options);
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  agree(bootstrap, mine);
  return lanes;
}

}  // namespace

StagedBackend::StagedBackend(Options const& options, DeviceSetup const& setup)
    : options_(options),
      device_{DeviceType::cuda, options.device},
      rank_(setup.bootstrap.rank()),
      size_(setup.bootstrap.size()),
      own_stream_(high_priority_stream(options)),
      lanes_(make_lanes(options, setup.bootstrap)),
      host_(create_host(setup)),
      staging_(host_, Staging::region_for(options.chunk_bytes, size_), options.device, cuda()),
      inside_(options.inside ? options.inside(host_) : nullptr),
      recorder_(FlightRecorder::create(setup.bootstrap, *setup.options.config,
                                       setup.options.name.empty() ? name() : setup.options.name + "/" + name())) {
  if (setup.options.config->explain && rank_ == 0) explainer_.emplace(name(), size_);
  courier_ = std::make_unique<Courier>(
      Courier::Setup{&cuda(), &host_, &staging_, &lanes_->signals, recorder_.get(), inside_.get(), device_});
}

// First the courier ends its jobs, then the GPU its copies; only then are the slots free.
StagedBackend::~StagedBackend() {
  courier_.reset();
  lanes_.reset();
}

cuda::CudaStream& StagedBackend::stream_for(Stream const* stream) {
  auto& on = *cuda::as_cuda(stream == nullptr ? own_stream_ : *stream);
  on.launch_deferred();
  return on;
}

void StagedBackend::refuse_capture(cuda::CudaStream const& on, Call const& call) const {
  auto status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  cuda::DefaultStreamGuard const guard(on);
  cuda::check(cuda(), cuda().stream_capture(on.handle(), &status, &capture), "cudaStreamGetCaptureInfo");
  if (status == cudaStreamCaptureStatusNone) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("rank {}: {} on {}: its stream is under capture, but through host memory a call cannot "
                          "become part of a graph; call it outside",
                          rank_, describe(call.contract), to_string(device_)));
}

std::unique_ptr<Plan> StagedBackend::plan(Call const& call) {
  auto inside = inside_ ? inside_->plan(call) : nullptr;
  if (inside) return inside;
  return std::make_unique<FlatPlan>(call, host_, staging_.region_bytes());
}

std::shared_ptr<Job> StagedBackend::job_of(Call& call, Failure failure) {
  call.sequence = ++issued_;
  call.on_stream = true;
  if (!call.parts_storage) call.own_parts();  // a group's calls own theirs already
  recorder_->enqueue(call);
  auto job = std::make_shared<Job>();
  job->call = call;
  job->plan = plan(call);
  job->steps = static_cast<std::uint32_t>(job->plan->steps());
  job->failure = std::move(failure);
  return job;
}

std::shared_ptr<Job> StagedBackend::job_of(Batch const& batch, Failure failure) {
  auto job = std::make_shared<Job>();
  job->call = batch.transfer;
  job->call.sequence = ++transfers_;
  job->call.on_stream = true;
  job->call.device = device_;
  job->failure = std::move(failure);
  for (auto message : batch.messages) {
    auto memory = lanes_->pool.take(message.bytes);
    job->device_data.push_back(std::exchange(message.data, memory.get()));
    job->memory.push_back(std::move(memory));
    job->messages.push_back(message);
  }
  return job;
}

std::shared_ptr<Work::State> StagedBackend::run(Call& call, Stream const* stream) {
  courier_->throw_if_failed();
  auto& on = stream_for(stream);
  refuse_capture(on, call);
  auto const failure = make_failure();
  return launch({job_of(call, failure)}, on, failure, stream == nullptr);
}

std::shared_ptr<Work::State> StagedBackend::run(Batch const& batch, Stream const* stream) {
  courier_->throw_if_failed();
  auto& on = stream_for(stream);
  refuse_capture(on, batch.calls.empty() ? batch.transfer : batch.calls.front());
  auto const failure = make_failure();
  std::vector<std::shared_ptr<Job>> jobs;
  for (auto& call : batch.calls) jobs.push_back(job_of(call, failure));
  if (!batch.messages.empty()) jobs.push_back(job_of(batch, failure));
  return launch(jobs, on, failure, stream == nullptr);
}

std::shared_ptr<Work::State> StagedBackend::launch(std::vector<std::shared_ptr<Job>> const& jobs, cuda::CudaStream& on,
                                                   Failure const& failure, bool waits) {
  for (auto const& job : jobs) {
    job->first = steps_ + 1;
    steps_ += job->steps;
    explain(*job);
  }
  for (auto const& job : jobs) {
    job->last_of_work = steps_;
    courier_->submit(job);
  }
  std::shared_ptr<cuda::CudaWork> work;
  try {
    for (auto const& job : jobs) enqueue(*job, on);
    work = lanes_->works.make(on, failure, false);
    work->state.enqueue();
  } catch (Error const& error) {
    courier_->fail(error.code(), fmt::format("rank {}: {} on {}, through host memory: {}", rank_,
                                             describe(jobs.front()->call), to_string(device_), error.what()));
  }
  for (auto const& job : jobs) {
    job->work = work;
    job->enqueued.store(true, std::memory_order_release);
  }
  if (!work) {
    // The part that was enqueued uses the buffers, which the caller may free after this throws.
    if (!lanes_->come_to_rest()) std::rethrow_exception(still_in_use(courier_->failure(), jobs.front()->call));
    courier_->throw_if_failed();
  }
  auto* const state = &work->state;
  if (!waits) return {std::move(work), state};
  state->wait();
  if (auto const error = state->error()) std::rethrow_exception(error);
  return nullptr;
}

// Steps are enqueued in the order of their dependencies: a slot's next copy out comes after the copy in that empties
// the slot.
void StagedBackend::enqueue(Job const& job, cuda::CudaStream& on) {
  lanes_->begin(on, job.first, job.goes_inside());
  constexpr auto kAhead = Staging::kSlots - 1;
  for (std::size_t step = 0; step < job.steps + kAhead; ++step) {
    if (step < job.steps) go_out(job, step);
    if (step >= kAhead) come_in(job, step - kAhead);
  }
  lanes_->wait(on, lanes_->landed[(job.steps - 1) % Staging::kSlots]);
}

void StagedBackend::go_out(Job const& job, std::size_t step) {
  auto const& lanes = *lanes_;
  if (job.goes_inside()) {
    inside_->issue(job.plan->before(step), *lanes.among);
    lanes.hand_over(lanes.ready[step % Staging::kSlots], *lanes.among, *lanes.out);
  }
  lanes.go_out(step, job.first + static_cast<std::uint32_t>(step), job.copies_out(step, staging_.slot(step)));
}

// On `among`, a step's last calls come before the first calls of the next step that uses the same slot. So that step
// can also use the slot's memory on the device.
void StagedBackend::come_in(Job const& job, std::size_t step) {
  auto const& lanes = *lanes_;
  auto const number = job.first + static_cast<std::uint32_t>(step);
  lanes.come_in(step, number, job.copies_in(step, staging_.slot(step)));
  if (!job.goes_inside()) return lanes.land(step, number, *lanes.in);
  lanes.hand_over(lanes.back[step % Staging::kSlots], *lanes.in, *lanes.among);
  inside_->issue(job.plan->after(step), *lanes.among);
  lanes.land(step, number, *lanes.among);
}

void StagedBackend::explain(Job const& job) {
  if (!explainer_) return;
  explainer_->note(job.call.contract.operation, to_string(device_), job.plan ? job.plan->way() : "copies", [&] {
    return fmt::format("chunks of {}, {} in flight", describe_bytes(staging_.region_bytes()), Staging::kSlots);
  });
}

std::shared_ptr<void> StagedBackend::allocate(Call const& call, Bootstrap& bootstrap) {
  courier_->throw_if_failed();
  Outcome mine;
  std::optional<Buffer> made;
  try {
    MemoryScope const scope(MemoryScope::current(MemoryKind::communication));
    made.emplace(cuda::allocate(call.bytes(), DataType::u8, device_.index, cuda()));
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  agree(bootstrap, mine);
  return made->owner();
}

std::string StagedBackend::why_not_symmetric() const {
  return "calls go through host memory, for which device memory is not registered";
}

Stream StagedBackend::make_stream() const {
  return high_priority_stream(options_);
}

Stream StagedBackend::default_stream() const {
  return Stream(std::make_shared<cuda::CudaStream>(nullptr, device_.index, cuda()));
}

std::unique_ptr<DeviceFactory> StagedBackend::split(int color, int /*key*/) {
  courier_->throw_if_failed();
  return color < 0 ? nullptr : factory(options_);
}

std::unique_ptr<DeviceFactory> StagedBackend::renew(std::vector<int> const& /*lost*/) {
  fail(ErrorCode::aborted, "another communicator takes the place of this one");  // no effect if it has failed already
  courier_->await_idle();
  return factory(options_);
}

void StagedBackend::fail(ErrorCode code, std::string const& reason) noexcept {
  courier_->fail(code, code == ErrorCode::aborted ? fmt::format("aborted by rank {}: {}", rank_, reason) : reason);
}

}  // namespace weft::staged
