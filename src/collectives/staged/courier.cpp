#include "collectives/staged/courier.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/device_access.hpp"
#include "collectives/still_in_use.hpp"
#include "core/log.hpp"
#include "core/quiet_thread.hpp"
#include "weft/group.hpp"

namespace weft::staged {
namespace {

using namespace std::chrono_literals;

constexpr auto kNapBusy = 20us;    // between looks at a word that the GPU writes
constexpr auto kNapIdle = 10ms;    // the most by which another rank's failure is noticed late
constexpr auto kPatience = 500ms;  // how long the GPU may take to finish a failed job
constexpr auto kWithinGpus = "what the GPUs do for it among themselves, which all ranks have begun,";

Error late(char const* what, std::chrono::milliseconds timeout) {
  return {ErrorCode::timeout,
          fmt::format("{} is not through after {} ms; it is stuck or slow: look there, or raise WEFT_TIMEOUT", what,
                      timeout.count())};
}

}  // namespace

Courier::Courier(Setup const& setup)
    : setup_(setup),
      failure_(std::make_shared<cuda::SharedFailure>(setup.inside == nullptr ? cuda::SharedFailure::Elsewhere()
                                                                             : setup.inside->told())),
      thread_(start_quietly([this] { run(); })) {}

Courier::~Courier() {
  {
    std::scoped_lock const lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Courier::submit(std::shared_ptr<Job> job) {
  {
    std::scoped_lock const lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

std::shared_ptr<Job> Courier::next() {
  std::unique_lock lock(mutex_);
  busy_ = false;
  changed_.notify_all();
  auto const nap = carried_.empty() ? Clock::duration(kNapIdle) : Clock::duration(kNapBusy);
  changed_.wait_for(lock, nap, [&] { return !jobs_.empty() || (ending_ && carried_.empty()); });
  if (jobs_.empty()) return nullptr;
  auto job = std::move(jobs_.front());
  jobs_.pop_front();
  busy_ = true;
  return job;
}

void Courier::run() noexcept {
  pthread_setname_np(pthread_self(), "weft-staged");
  // This thread queries events, which must not invalidate a capture in another thread.
  auto mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(setup_.cuda->thread_exchange_stream_capture_mode(&mode));
  while (true) {
    auto const job = next();
    retire();
    if (failure_->is_set()) end_inside();
    if (job) {
      carry(*job);
      if (!job->failure->is_set()) carried_.push_back(job);
      continue;
    }
    {
      std::scoped_lock const lock(mutex_);
      if (ending_ && jobs_.empty() && carried_.empty()) return;
    }
    if (failure_->is_set()) continue;
    if (!carried_.empty() && has_lost_gpu(*carried_.front())) tell_lost_gpu(*carried_.front());
    if (!carried_.empty() && setup_.inside == nullptr) continue;
    try {
      look_around();
      if (!carried_.empty()) look_at_time(*carried_.front());
    } catch (Error const& error) {
      fail(error.code(), error.what());
    }
  }
}

void Courier::carry(Job& job) {
  if (job.plan) setup_.recorder->start(job.call);
  started_ = Clock::now();
  if (!failure_->is_set()) {
    try {
      if (job.plan) {
        carry_collective(job);
      } else {
        setup_.recorder->record(job.call, job.messages, [&] { carry_messages(job); });
      }
      return;
    } catch (Error const& error) {
      fail(error.code(), explain(job, error.what()));
    } catch (std::exception const& error) {
      fail(ErrorCode::system, explain(job, error.what()));
    }
  }
  end_inside();
  drop(job);
}

std::string Courier::explain(Job const& job, std::string const& why) const {
  return fmt::format("rank {}: {} on {}, {}: {}", setup_.host->rank(), describe(job.call), to_string(job.call.device),
                     job.goes_inside() ? "by NCCL and the host" : "through host memory", why);
}

void Courier::carry_collective(Job& job) {
  constexpr auto kBefore = "what its stream does before it";
  bool const inside = job.goes_inside();
  // A rank takes part in agree() only once its stream has come to the call. So whatever is late from then on is what
  // the GPUs do together, not a stuck stream.
  if (inside) await(job, setup_.signals->reached(), job.first, kBefore);
  auto const rounds = agree(job);
  for (std::size_t round = 0; round < rounds; ++round) {
    auto const step = job.first + static_cast<std::uint32_t>(round);
    bool const is_ours = round < job.steps;
    if (is_ours) await(job, setup_.signals->copied(), step, inside ? kWithinGpus : kBefore);
    if (inside) hear();  // a failure may have cut the GPUs' work short: such a result must not go to other hosts
    job.plan->exchange(round, setup_.staging->slot(round));
    if (is_ours) Signals::set(setup_.signals->exchanged(), step);
  }
  job.exchanged_at = Clock::now();
}

std::size_t Courier::agree(Job const& job) {
  auto& host = *setup_.host;
  PackedContract const packed(job.call.contract);
  std::array<std::uint64_t, 3> const mine{packed.count, packed.rest, job.steps};
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(host.size()));
  host.all_gather(std::span<std::uint64_t const>(mine), std::span(all), {.timeout = job.call.timeout});
  auto const contract_of = [&](int rank) {
    auto const* const told = all.data() + mine.size() * static_cast<std::size_t>(rank);
    return PackedContract(told[0], told[1]).unpack();
  };
  std::size_t rounds = 0;
  for (int rank = 0; rank < host.size(); ++rank) {
    if (contract_of(rank) != contract_of(0)) {
      throw Error(ErrorCode::mismatch,
                  describe_mismatch(job.call.sequence, 0, contract_of(0), rank, contract_of(rank)));
    }
    rounds = std::max<std::size_t>(rounds, all[mine.size() * static_cast<std::size_t>(rank) + 2]);
  }
  return rounds;
}

void Courier::carry_messages(Job& job) {
  await(job, setup_.signals->copied(), job.first, "what its stream does before it");
  auto& host = *setup_.host;
  Group group(host, {.timeout = job.call.timeout});
  for (auto const& message : job.messages) {
    BufferView const view(message.data, message.bytes / size_of(message.dtype), message.dtype);
    if (message.direction == Message::Direction::send) {
      host.send(view, message.peer);
    } else {
      host.recv(view, message.peer);
    }
  }
  static_cast<void>(group.end());
  Signals::set(setup_.signals->exchanged(), job.first);
}

void Courier::await(Job const& job, std::uint32_t* word, std::uint32_t step, char const* what) {
  constexpr int kQuickLooks = 200;
  for (int looks = 0; !Signals::has_reached(word, step); ++looks) {
    if (looks < kQuickLooks) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kNapBusy);
    if (Clock::now() - started_ >= job.call.timeout) throw late(what, job.call.timeout);
    throw_if_failed();
    look_around();
    if (has_lost_gpu(job)) job.work->completion.throw_if_broken();
  }
}

void Courier::look_around() {
  auto const now = Clock::now();
  if (now - seen_ < kNapIdle) return;
  seen_ = now;
  hear();
  if (setup_.inside == nullptr) return;
  if (auto const error = setup_.inside->failure()) throw *error;
}

void Courier::hear() {
  throw_if_failed();
  DeviceAccess::throw_if_failed(*setup_.host);
}

bool Courier::is_doubtful() noexcept {
  try {
    hear();
  } catch (std::exception const&) {
    return true;
  }
  return false;
}

void Courier::look_at_time(Job const& job) {
  if (!job.goes_inside() || Clock::now() - job.exchanged_at < job.call.timeout) return;
  throw Error(ErrorCode::timeout, explain(job, late(kWithinGpus, job.call.timeout).what()));
}

void Courier::retire() {
  while (!carried_.empty()) {
    auto const job = carried_.front();
    if (!job->enqueued.load(std::memory_order_acquire)) return;
    if (job->work) {
      // Reading the signal costs less than querying the event; but if the GPU has failed, the signal never comes.
      bool const landed = Signals::has_reached(setup_.signals->landed(), job->last());
      if (!landed && !failure_->is_set()) return;
      if (!job->work->completion.reached()) return;
      if (job->goes_inside() && is_doubtful()) return;
    }
    carried_.pop_front();
    conclude(*job);
  }
}

void Courier::conclude(Job& job) noexcept {
  if (!job.work) return drop(job);  // it could not be enqueued completely, which is a failure
  if (job.work->completion.is_broken()) {
    tell_lost_gpu(job);
    return drop(job);
  }
  job.work->state.complete_once(job.failure->get());
  if (job.plan) setup_.recorder->finish(job.call);
}

bool Courier::has_lost_gpu(Job const& job) {
  auto const now = Clock::now();
  if (now - asked_ < kNapIdle) return false;
  asked_ = now;
  if (!job.enqueued.load(std::memory_order_acquire) || !job.work) return false;
  return job.work->completion.reached() && job.work->completion.is_broken();
}

void Courier::tell_lost_gpu(Job const& job) noexcept {
  try {
    job.work->completion.throw_if_broken();
  } catch (Error const& error) {
    if (!failure_->is_set()) fail(error.code(), explain(job, error.what()));
  }
}

void Courier::fail(ErrorCode code, std::string const& message) noexcept {
  try {
    if (setup_.inside != nullptr) setup_.inside->tell(code, message);  // first, before anything ends other ranks' work
    failure_->set(std::make_exception_ptr(Error(code, message)));
    DeviceAccess::fail(*setup_.host, code, message);
    if (setup_.inside != nullptr) setup_.inside->fail(code, message);
  } catch (std::exception const& error) {
    log(LogLevel::error, fmt::format("rank {}: {}: {}", setup_.host->rank(), message, error.what()));
  }
}

// The job's failure is set before the GPU goes on, so that whoever finds the Work's event reached also finds the
// failure.
void Courier::drop(Job& job) noexcept {
  auto why = failure_->get();
  job.failure->set(why);
  // The Work's event comes after all jobs that share the Work, so the GPU must get past all of them; they all fail.
  Signals::set(setup_.signals->exchanged(), job.last_of_work);
  while (!job.enqueued.load(std::memory_order_acquire)) std::this_thread::sleep_for(kNapBusy);
  auto const reached = [&] { return !job.work || job.work->completion.reached(); };
  auto const deadline = Clock::now() + kPatience;
  while (!reached() && Clock::now() < deadline) std::this_thread::sleep_for(kNapBusy);
  if (!reached() && job.goes_inside()) setup_.inside->abort(reached);
  if (!reached()) why = still_in_use(why, job.call);
  try {
    std::rethrow_exception(why);
  } catch (std::exception const& said) {
    if (job.plan) setup_.recorder->fail(job.call, said);
  }
  if (job.work) job.work->state.complete_once(why);
}

// Jobs already seen to be finished have succeeded. Once any rank has stopped NCCL it cannot be known whether the rest
// are right, so they are marked as failed before this rank stops it. Jobs that come later wait for the host's signal,
// which is set after their failure.
void Courier::end_inside() noexcept {
  if (setup_.inside == nullptr || ended_inside_.exchange(true)) return;
  retire();
  auto const first = std::find_if(carried_.begin(), carried_.end(), [](auto const& job) { return job->goes_inside(); });
  std::vector<std::shared_ptr<Job>> const unfinished(first, carried_.end());
  carried_.erase(first, carried_.end());
  for (auto const& job : unfinished) job->failure->set(failure_->get());
  setup_.inside->stop();
  for (auto const& job : unfinished) drop(*job);
}

void Courier::await_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && !busy_ && (setup_.inside == nullptr || ended_inside_); });
}

}  // namespace weft::staged
