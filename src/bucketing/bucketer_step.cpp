#include <fmt/format.h>

#include "bucketing/bucket_names.hpp"
#include "bucketing/bucketer_impl.hpp"
#include "core/log.hpp"
#include "runtime/timeline.hpp"
#include "weft/error.hpp"

namespace weft {

// After a hook has failed here, peers wait for what it has not sent.
void Bucketer::Impl::rethrow_from(std::size_t bucket) {
  Bucket const& plan = storage_.plan().buckets[bucket];
  auto const describe = [&](char const* cause) {
    std::string text = fmt::format("bucket {} of {} (tensors {}; {} bytes): {}{}", bucket, storage_.bucket_count(),
                                   name_tensors(plan), plan.bytes(), sender_.has_hook() ? "hook: " : "", cause);
    if (sender_.has_hook()) communicator_.abort(fmt::format("rank {}: {}", communicator_.rank(), text));
    return text;
  };
  try {
    throw;
  } catch (Error const& error) {
    throw Error(error.code(), describe(error.what()));
  } catch (std::exception const& error) {
    throw Error(ErrorCode::aborted, describe(error.what()));
  }
}

void Bucketer::Impl::launch_next() {
  std::size_t const bucket = launched_;
  if (!tracker_.awaits_any(bucket)) ready_[bucket] = now();
  for (BucketSlot const& slot : storage_.plan().buckets[bucket].slots) {
    if (tracker_.has_gradient(slot.tensor)) continue;
    if (sender_.sharded()) {
      storage_.zero(slot.tensor);
    } else {
      unused_.send_zeros(storage_, slot.tensor);
    }
  }
  if (storage_.plan().buckets[bucket].count != 0) {
    try {
      std::span<std::uint8_t const> const here =
          presence_.matters() ? tracker_.gradients() : std::span<std::uint8_t const>();
      sent_[bucket] = sender_.send(storage_, bucket, here);
    } catch (std::exception const&) {
      rethrow_from(bucket);
    }
  }
  ++launched_;
}

BufferView Bucketer::Impl::shard(std::size_t bucket) const {
  if (bucket < storage_.bucket_count()) return sender_.part(storage_, bucket);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("bucketer: shard({}): there are {} buckets", bucket, storage_.bucket_count()));
}

void Bucketer::Impl::launch_full_buckets() {
  while (launched_ < storage_.bucket_count() && tracker_.is_full(launched_)) launch_next();
}

void Bucketer::Impl::mark(std::size_t index, bool with_gradient) {
  check_usable();
  if (all_launched_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucketer: mark_{}({}): this step's buckets are on their way; call finish() first",
                            with_gradient ? "ready" : "unused", index));
  }
  if (join_ && sync_ && !join_->announced()) announce_own_step();
  bool const full = tracker_.mark(index, with_gradient);
  if (!marked_at_.empty()) marked_at_[index].record(*sender_.compute());
  storage_.note_whole(tracker_.bucket_of(index));
  if (!full) return;
  ready_[tracker_.bucket_of(index)] = now();
  bool const overlaps = options_.overlap && !(sender_.sharded() && rebuild_pending_);
  if (sync_ && overlaps && tracker_.is_full(launched_)) guarded([this] { launch_full_buckets(); });
}

void Bucketer::Impl::set_sync(bool sync) {
  if (!sync_) {
    tracker_.end_pass();
  } else if (!sync) {
    check_usable();
    if (tracker_.any_marked() || all_launched_) {
      throw Error(ErrorCode::invalid_argument,
                  "bucketer: set_sync(false): tensors of a synchronised step are marked already; call finish() first");
    }
  }
  sync_ = sync;
}

void Bucketer::Impl::finish_launching() {
  check_usable();
  if (!sync_ || all_launched_) return;
  if (join_ && !join_->announced()) announce_own_step();
  gave_up_ = now();
  for (std::size_t bucket = launched_; bucket < storage_.bucket_count(); ++bucket) {
    if (!tracker_.is_full(bucket)) ready_[bucket] = gave_up_;
  }
  guarded([this] {
    if (rebuild_pending_ && sender_.sharded()) rebuild_before_sending();
    while (launched_ < storage_.bucket_count()) launch_next();
    presence_.begin(tracker_.gradients());
    presence_.agree(communicator_, sender_.stream());
  });
  all_launched_ = true;
}

void Bucketer::Impl::wait_for_bucket(std::size_t bucket) {
  if (auto const& compute = sender_.compute()) {
    sent_[bucket].done.wait_on(*compute);
    if (sent_[bucket].arrived) sent_[bucket].arrived->wait_on(*compute);
    if (sent_[bucket].timing) sent_[bucket].timing->wait_on(*compute);
  } else {
    try {
      sent_[bucket].done.wait();
      sent_[bucket].begun.wait();
    } catch (std::exception const&) {
      rethrow_from(bucket);
    }
  }
  if (join_ && divided_[bucket] == 0) divide_by_active(bucket);
}

void Bucketer::Impl::check_launched(char const* call, std::size_t index) const {
  check_usable();
  tracker_.check_index(call, index);
  if (all_launched_) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("bucketer: {}({}): call finish_launching() first, else the bucket may never start", call, index));
}

bool Bucketer::Impl::has_arrived(std::size_t index) const {
  check_launched("has_arrived", index);
  auto const& sent = sent_[tracker_.bucket_of(index)];
  return sent.done.test() && sent.begun.test() && (!unused_.is_aside(index) || presence_.is_known());
}

void Bucketer::Impl::wait(std::size_t index) {
  check_launched("wait", index);
  guarded([&] {
    wait_for_bucket(tracker_.bucket_of(index));
    unused_.settle(storage_, index);
  });
}

// Throws the first failure, after nothing is under way any more.
void Bucketer::Impl::wait_for_all() {
  std::exception_ptr first;
  for (std::size_t bucket = 0; bucket < launched_; ++bucket) {
    try {
      wait_for_bucket(bucket);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  sender_.throw_if_failed();
  if (launched_ > 0) sender_.wait_for_followers();
  if (first) {
    presence_.drain();
    std::rethrow_exception(first);
  }
  presence_.wait();
  unused_.settle_all(storage_);
}

void Bucketer::Impl::record_timings() {
  timings_.clear();
  if (sender_.compute()) return;  // asking a GPU means waiting for it
  for (std::size_t bucket = 0; bucket < storage_.bucket_count(); ++bucket) {
    WorkTimings const done = sent_[bucket].done.timings();
    WorkTimings const begun = sent_[bucket].begun.timings();
    BucketTiming timing{storage_.plan().buckets[bucket].bytes(), ready_[bucket], done.started, done.finished};
    if (begun.started != Clock::time_point()) timing.started = begun.started;
    // What was not enqueued has no times of its own.
    if (timing.started == Clock::time_point()) timing.started = timing.ready;
    if (timing.finished == Clock::time_point()) timing.finished = timing.started;
    timings_.push_back(timing);
  }
}

std::vector<BucketTiming> Bucketer::Impl::timings_since(Event const& origin, Clock::time_point at) const {
  std::vector<BucketTiming> timings;
  for (std::size_t bucket = 0; bucket < sent_.size(); ++bucket) {
    auto const& timing = sent_[bucket].timing;
    if (timing) timings.push_back(timing->read(storage_.plan().buckets[bucket].bytes(), origin, at));
  }
  return timings;
}

void Bucketer::Impl::finish() {
  check_usable();
  if (!sync_) {
    tracker_.end_pass();
    timings_.clear();
    for (BucketSender::Sent& sent : sent_) sent.timing.reset();
    return;
  }
  finish_launching();
  guarded([this] { wait_for_all(); });
  storage_.end_step();
  record_timings();
  std::optional<std::size_t> const missing = shadowing_ ? std::nullopt : presence_.missing(tracker_.gradients());
  Observation seen;
  if (rebuild_pending_) seen = observation();
  tracker_.end_step();
  launched_ = 0;
  all_launched_ = false;
  if (rebuild_pending_) guarded([&] { rebuild(std::move(seen)); });
  learn_unused();
  if (join_) join_->end_step();
  if (missing) throw BrokenPromise("bucketer: finish()", *missing);
}

// Nothing can be learnt from a step in which some rank had no data.
void Bucketer::Impl::learn_unused() {
  if (join_ && join_->count() != communicator_.size()) return;
  std::vector<std::size_t> const never = presence_.learn();
  if (!never.empty()) tracker_.leave_out(never);
}

void Bucketer::Impl::drain() noexcept {
  for (std::size_t bucket = 0; bucket < launched_; ++bucket) {
    try {
      sent_[bucket].done.wait();
    } catch (std::exception const& error) {
      // The caller knows a failure that finish() or wait() has thrown, but not one that nobody asked for.
      if (!has_failed()) log(LogLevel::warn, fmt::format("bucketer: destroyed before finish(): {}", error.what()));
    }
  }
  presence_.drain();
  if (join_) join_->drain();
  // A hook that threw may have left work behind.
  if (!sender_.compute() && (launched_ > 0 || sender_.has_hook())) sender_.wait_for_followers();
}

}  // namespace weft
