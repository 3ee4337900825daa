#include "bucketing/bucket_storage.hpp"

#include <cstring>

#include "runtime/stream_impl.hpp"

namespace weft {

BucketStorage::BucketStorage(Communicator& communicator, BucketPlan plan, MemoryKind kind,
                             std::optional<Stream> const& on)
    : plan_(std::move(plan)), on_(on) {
  MemoryScope const scope(kind);
  Device const device = on ? on->device() : Device{};
  std::size_t tensors = 0;
  for (Bucket const& bucket : plan_.buckets) tensors += bucket.slots.size();
  tensors_.resize(tensors);
  buffers_.reserve(plan_.buckets.size());
  for (Bucket const& bucket : plan_.buckets) {
    buffers_.push_back(bucket.count == 0 ? Buffer(nullptr, 0, bucket.dtype, device)
                                         : communicator.allocate(bucket.count, bucket.dtype, device));
    released_.emplace_back(kind, 0);
    BufferView const whole = buffers_.back().view();
    for (BucketSlot const& slot : bucket.slots) {
      tensors_[slot.tensor] =
          slot.count == 0 ? BufferView(nullptr, 0, bucket.dtype, device) : whole.slice(slot.offset, slot.count);
    }
  }
}

void BucketStorage::note_released(std::size_t index, std::size_t kept) const {
  released_[index].set(static_cast<std::ptrdiff_t>(kept) - static_cast<std::ptrdiff_t>(bucket(index).bytes()));
}

void BucketStorage::zero(std::size_t tensor) const {
  BufferView const& view = tensors_[tensor];
  if (view.count == 0) return;
  if (on_) return on_->impl().zero(view.data, view.bytes());
  std::memset(view.data, 0, view.bytes());
}

void BucketStorage::copy_tensors_from(BucketStorage const& other) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    BufferView const& view = tensors_[i];
    if (view.count == 0) continue;
    if (on_) {
      on_->impl().copy(view.data, other.tensors_[i].data, view.bytes());
    } else {
      std::memcpy(view.data, other.tensors_[i].data, view.bytes());
    }
  }
}

}  // namespace weft
