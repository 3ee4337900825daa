#include "overlap_recorder.hpp"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <utility>

namespace weft::torch_backend {
namespace {

using std::chrono::nanoseconds;

/// A sample of another thread. If that thread has ended, its clock stands still.
ThreadSample sample(clockid_t clock) {
  timespec cpu{};
  ::clock_gettime(clock, &cpu);
  return {std::chrono::steady_clock::now(), clock, std::chrono::seconds(cpu.tv_sec) + nanoseconds(cpu.tv_nsec)};
}

ThreadSample sample_here() {
  clockid_t clock{};
  ::pthread_getcpuclockid(::pthread_self(), &clock);
  return sample(clock);
}

std::size_t bytes_of(at::TensorList tensors) {
  std::size_t bytes = 0;
  for (auto const& tensor : tensors) {
    bytes += tensor.is_sparse() ? tensor._indices().nbytes() + tensor._values().nbytes() : tensor.nbytes();
  }
  return bytes;
}

/// When the calling threads computed. Between two samples, a thread is assumed to compute first and wait afterwards.
/// Because a collective begins and ends at samples, this moves no time into it or out of it.
std::vector<Interval> compute_intervals(std::vector<RecordedCall> const& calls, std::vector<RecordedWait> const& waits,
                                        ThreadSample const& begin, ThreadSample const& end) {
  std::map<clockid_t, std::vector<ThreadSample>> threads;
  std::vector<RecordedWait> idle;
  for (auto const& call : calls) {
    for (auto const& one : {call.ready, call.started, call.finished}) threads[one.clock].push_back(one);
    if (call.on_caller) idle.push_back({call.started, call.finished});
  }
  for (auto const& wait : waits) {
    auto const thread = threads.find(wait.from.clock);
    if (thread == threads.end() || wait.to.at <= begin.at || end.at <= wait.from.at) continue;
    idle.push_back(wait);
    for (auto const& one : {wait.from, wait.to}) {
      if (begin.at <= one.at && one.at <= end.at) thread->second.push_back(one);
    }
  }
  for (auto const& one : {begin, end}) {
    if (auto const thread = threads.find(one.clock); thread != threads.end()) thread->second.push_back(one);
  }
  std::vector<Interval> intervals;
  for (auto& [clock, samples] : threads) {
    std::sort(samples.begin(), samples.end(), [](auto const& a, auto const& b) { return a.at < b.at; });
    for (std::size_t i = 1; i < samples.size(); ++i) {
      auto const& [from, to] = std::pair(samples[i - 1], samples[i]);
      auto const computed = std::clamp(to.cpu - from.cpu, nanoseconds(0), nanoseconds(to.at - from.at));
      auto const communicates = [&, clock = clock](RecordedWait const& wait) {
        return wait.from.clock == clock && wait.from.at <= from.at && to.at <= wait.to.at;
      };
      if (computed.count() > 0 && std::none_of(idle.begin(), idle.end(), communicates)) {
        intervals.push_back({from.at, from.at + computed});
      }
    }
  }
  return intervals;
}

StepReport report_step(std::vector<RecordedCall> const& calls, std::vector<RecordedWait> const& waits,
                       ThreadSample const& begin, ThreadSample const& end) {
  StepReport step;
  step.step = {begin.at, end.at};
  for (auto const& call : calls) {
    step.names.emplace_back(call.name);
    step.calls.push_back({call.bytes, call.ready.at, call.started.at, call.finished.at});
  }
  step.compute = compute_intervals(calls, waits, begin, end);
  step.report = OverlapReport::build(step.step, step.compute, step.calls);
  return step;
}

/// Number of Watches that live on this thread.
thread_local int watches = 0;

}  // namespace

/// A call of a communicator that no process group made.
class OverlapRecorder::Observed final : public CallObserver::Call {
 public:
  Observed(OverlapRecorder& recorder, std::string_view operation, std::size_t bytes) : recorder_(recorder) {
    call_.name = operation.data();  // a constant of the library
    call_.bytes = bytes;
    call_.ready = call_.started = sample_here();
  }
  void started() noexcept override {
    call_.started = sample(call_.ready.clock);
    call_.on_caller = ::pthread_equal(caller_, ::pthread_self()) != 0;  // a waiting thread may run the call
  }
  void finished() noexcept override {
    call_.finished = sample(call_.ready.clock);
    recorder_.add(call_);
  }

 private:
  OverlapRecorder& recorder_;
  pthread_t caller_ = ::pthread_self();
  RecordedCall call_{};
};

std::shared_ptr<CallObserver::Call> OverlapRecorder::enqueued(std::string_view operation, std::size_t bytes) {
  if (!is_on() || watches > 0) return nullptr;
  return std::make_shared<Observed>(*this, operation, bytes);
}

OverlapRecorder& overlap_recorder() {
  static auto* const recorder = new OverlapRecorder;  // streams may still record while the process ends
  return *recorder;
}

void OverlapRecorder::start() {
  std::lock_guard const lock(mutex_);
  began_ = std::chrono::steady_clock::now();
  calls_.clear();
  waits_.clear();
  ends_.clear();
  on_.store(true, std::memory_order_relaxed);
  observe_calls(this);
}

OverlapRecorder::Watch::Watch(OverlapRecorder& recorder, char const* name, at::TensorList inputs,
                              at::TensorList results, std::optional<Stream> const& stream)
    : recorder_(recorder) {
  ++watches;
  if (!recorder.is_on()) return;
  stream_ = stream;
  call_ = std::make_shared<RecordedCall>();
  call_->name = name;
  call_->bytes = std::max(bytes_of(inputs), bytes_of(results));
  call_->on_caller = !stream.has_value();
  call_->ready = sample_here();
  call_->started = call_->ready;
  if (stream_) stream_->enqueue([call = call_] { call->started = sample(call->ready.clock); });
}

OverlapRecorder::Watch::~Watch() {
  --watches;
}

void OverlapRecorder::Watch::issued() {
  if (!call_) return;
  auto const finish = [&recorder = recorder_, call = call_] {
    call->finished = sample(call->ready.clock);
    recorder.add(*call);
  };
  stream_ ? stream_->enqueue(finish) : finish();
}

void OverlapRecorder::Watch::issued(Messenger::Request const& request) {
  if (!call_) return;
  call_->on_caller = request.test();  // a short message has been sent already
  request.then([&recorder = recorder_, call = call_] {
    call->finished = sample(call->ready.clock);
    recorder.add(*call);
  });
}

OverlapRecorder::Wait::Wait(OverlapRecorder& recorder) : recorder_(recorder) {
  if (recorder.is_on()) from_ = sample_here();
}

OverlapRecorder::Wait::~Wait() {
  if (!from_) return;
  RecordedWait const wait{*from_, sample_here()};
  std::lock_guard const lock(recorder_.mutex_);
  recorder_.waits_.push_back(wait);
  if (recorder_.waits_.size() > kMostCalls) recorder_.waits_.pop_front();
}

void OverlapRecorder::add(RecordedCall const& call) {
  std::lock_guard const lock(mutex_);
  if (call.ready.at < began_) return;
  calls_.push_back(call);
  if (calls_.size() > kMostCalls) calls_.pop_front();
}

void OverlapRecorder::end_step() {
  if (!is_on()) return;
  auto const now = sample_here();
  std::lock_guard const lock(mutex_);
  ends_.push_back(now);
  if (ends_.size() > kMostCalls) ends_.pop_front();
}

OverlapRecorder::Run OverlapRecorder::run() const {
  std::lock_guard const lock(mutex_);
  Run run{{calls_.begin(), calls_.end()}, {waits_.begin(), waits_.end()}, {ends_.begin(), ends_.end()}};
  std::sort(run.calls.begin(), run.calls.end(), [](auto const& a, auto const& b) { return a.ready.at < b.ready.at; });
  return run;
}

std::vector<StepReport> OverlapRecorder::steps() const {
  auto run = this->run();
  std::vector<StepReport> steps;
  if (run.calls.empty()) return steps;
  auto last = run.calls.front().finished;
  for (auto const& call : run.calls) last = call.finished.at > last.at ? call.finished : last;
  if (run.ends.empty() || run.ends.back().at < last.at) run.ends.push_back(last);
  auto call = run.calls.begin();
  auto begin = call->ready;
  for (auto const& end : run.ends) {
    auto const first = call;
    call = std::find_if(call, run.calls.end(), [&](auto const& one) { return one.ready.at >= end.at; });
    if (first != call) steps.push_back(report_step({first, call}, run.waits, begin, end));
    begin = end;
  }
  return steps;
}

Trace OverlapRecorder::trace() const {
  Trace trace;
  auto const all = steps();
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto const name = [&](std::string const& what) { return "step " + std::to_string(i) + ": " + what; };
    for (auto const& interval : all[i].compute) trace.add(Trace::Lane::compute, name("compute"), interval);
    for (std::size_t k = 0; k < all[i].calls.size(); ++k) {
      auto const& call = all[i].calls[k];
      trace.add(Trace::Lane::communication, name(all[i].names[k] + " " + std::to_string(k)),
                {call.started, call.finished}, call.bytes);
    }
  }
  return trace;
}

}  // namespace weft::torch_backend
