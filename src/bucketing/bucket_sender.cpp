#include "bucketing/bucket_sender.hpp"

#include <fmt/format.h>

#include <utility>

#include "bucketing/release_pages.hpp"
#include "collectives/device_access.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"

namespace weft {

namespace {

/// The stream that writes gradients, on a GPU.
std::optional<Stream> compute_stream(Communicator& communicator, BucketerOptions const& options) {
  if (options.device.type == DeviceType::cpu) return std::nullopt;
  communicator.connect(options.device);
  auto const stream = options.compute ? *options.compute : DeviceAccess::backend(communicator)->default_stream();
  if (stream.device() == options.device) return stream;
  throw Error(ErrorCode::invalid_argument, fmt::format("bucketer: options.compute is on {}, gradients on {}",
                                                       to_string(stream.device()), to_string(options.device)));
}

/// The stream that buckets are sent on.
Stream communication_stream(Communicator& communicator, BucketerOptions const& options) {
  if (options.stream) return *options.stream;
  if (options.device.type != DeviceType::cpu) return DeviceAccess::backend(communicator)->make_stream();
  return Stream::cpu({.name = "weft-comm", .cpu = {}});
}

}  // namespace

BucketSender::BucketSender(Communicator& communicator, BucketerOptions const& options)
    : communicator_(communicator),
      collective_(options.collective),
      op_(options.op),
      on_shard_(options.on_shard),
      timed_(options.timed),
      compute_(compute_stream(communicator, options)),
      call_{communication_stream(communicator, options), {}},
      hook_(options.hook) {}

std::size_t BucketSender::shards() const noexcept {
  return sharded() ? static_cast<std::size_t>(communicator_.size()) : 1;
}

BufferView BucketSender::mine(BufferView const& whole) const noexcept {
  std::size_t const count = whole.count / shards();
  return sharded() ? whole.slice(static_cast<std::size_t>(communicator_.rank()) * count, count) : whole;
}

void BucketSender::throw_if_failed() const {
  if (!compute_) return;
  if (auto const failure = DeviceAccess::backend(communicator_)->failure()) std::rethrow_exception(failure);
}

BufferView BucketSender::part(BucketStorage const& storage, std::size_t index) const {
  return storage.comes_and_goes() ? storage.part(index) : mine(storage.bucket(index));
}

Work BucketSender::collective(BufferView const& whole, BufferView const& part, std::shared_ptr<WireFeedback> feedback) {
  auto how = call_;
  how.feedback = std::move(feedback);
  if (!sharded()) return communicator_.all_reduce(whole, whole, op_, how);
  return communicator_.reduce_scatter(whole, part, op_, how);
}

std::shared_ptr<WireFeedback> const& BucketSender::feedback_of(std::size_t bucket) {
  if (bucket >= feedback_.size()) feedback_.resize(bucket + 1);
  if (!feedback_[bucket]) feedback_[bucket] = std::make_shared<WireFeedback>();
  return feedback_[bucket];
}

Work BucketSender::call_hook(BucketPlan const& plan, std::size_t index, BufferView const& whole, BufferView const& part,
                             std::span<std::uint8_t const> here) {
  return hook_({index, plan, whole, part, op_, communicator_, stream(), here});
}

Work BucketSender::send(BufferView const& whole) {
  if (compute_) follow(stream(), *compute_);
  if (!has_hook()) return collective(whole, mine(whole));
  BucketPlan const plan{{{whole.dtype, whole.count, {}}}};
  return call_hook(plan, 0, whole, mine(whole));
}

BucketSender::Sent BucketSender::send(BucketStorage const& storage, std::size_t index,
                                      std::span<std::uint8_t const> here) {
  BufferView const whole = storage.bucket(index);
  BufferView const part = this->part(storage, index);
  Sent sent;
  if (compute_ && timed_) sent.timing.emplace(*compute_);
  if (sent.timing) {
    sent.timing->start(stream());
  } else if (compute_) {
    follow(stream(), *compute_);
  }
  if (has_hook()) {
    if (!compute_) sent.begun = enqueue_work(stream(), [] {});
    sent.done = call_hook(storage.plan(), index, whole, part, here);
    sent.done.wait_on(stream());  // what follows here comes after it, whatever the hook did elsewhere
    if (compute_) sent.arrived.emplace().record(stream());
  } else {
    sent.done = collective(whole, part, feedback_of(index));
  }
  if (sent.timing) sent.timing->finish(stream());
  if (on_shard_ && sharded() && compute_) {
    on_shard_(part);
  } else if (on_shard_ && sharded()) {
    stream().enqueue([part, done = sent.done, look = on_shard_] {
      if (!done.error()) look(part);
    });
  }
  if (storage.comes_and_goes()) {
    storage.release(index, stream(), sent.done);
  } else if (collective_ == BucketCollective::reduce_scatter_and_release) {
    // Done right behind the collective, where nobody waits for it; not if that failed, because peers may still be
    // reading.
    stream().enqueue([&storage, index, whole, kept = part, done = sent.done] {
      if (done.error()) return;
      release_outside(whole, kept);
      storage.note_released(index, kept.bytes());
    });
  }
  if (has_followers()) behind_all_.record(stream());
  return sent;
}

bool BucketSender::has_followers() const noexcept {
  return on_shard_ != nullptr || collective_ == BucketCollective::reduce_scatter_and_release;
}

// Does not wait for the whole stream, which by then has the gathers of the next parameters.
void BucketSender::wait_for_followers() {
  if (compute_) return on_shard_ ? follow(*compute_, stream()) : void();
  if (has_hook()) return stream().synchronize();
  if (has_followers()) behind_all_.synchronize();
}

}  // namespace weft
