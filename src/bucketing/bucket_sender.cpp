#include "bucketing/bucket_sender.hpp"

#include "bucketing/release_pages.hpp"

namespace weft {

BucketSender::BucketSender(Communicator& communicator, BucketerOptions const& options)
    : communicator_(communicator),
      collective_(options.collective),
      op_(options.op),
      on_shard_(options.on_shard),
      call_{options.stream ? *options.stream : Stream::cpu({.name = "weft-comm", .cpu = {}}), {}} {}

std::size_t BucketSender::shards() const noexcept {
  return sharded() ? static_cast<std::size_t>(communicator_.size()) : 1;
}

BufferView BucketSender::mine(BufferView const& whole) const noexcept {
  std::size_t const count = whole.count / shards();
  return sharded() ? whole.slice(static_cast<std::size_t>(communicator_.rank()) * count, count) : whole;
}

Work BucketSender::send(BufferView const& whole) {
  if (!sharded()) return communicator_.all_reduce(whole, whole, op_, call_);
  return communicator_.reduce_scatter(whole, mine(whole), op_, call_);
}

Work BucketSender::send(BucketStorage const& storage, std::size_t index) {
  BufferView const whole = storage.bucket(index);
  Work work = send(whole);
  if (on_shard_ && sharded()) {
    stream().enqueue([part = mine(whole), work, look = on_shard_] {
      if (!work.error()) look(part);
    });
  }
  if (collective_ == BucketCollective::reduce_scatter_and_release) {
    // Right behind the collective, where nobody waits for it; not if it failed, for peers may still be reading.
    stream().enqueue([whole, kept = mine(whole), work] {
      if (!work.error()) release_outside(whole, kept);
    });
  }
  return work;
}

void BucketSender::wait_for_followers() {
  if (on_shard_ || collective_ == BucketCollective::reduce_scatter_and_release) stream().synchronize();
}

}  // namespace weft
