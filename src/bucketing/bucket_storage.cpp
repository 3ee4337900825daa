#include "bucketing/bucket_storage.hpp"

#include <cstring>

namespace weft {

BucketStorage::BucketStorage(Communicator& communicator, BucketPlan plan, MemoryKind kind) : plan_(std::move(plan)) {
  MemoryScope const scope(kind);
  std::size_t tensors = 0;
  for (Bucket const& bucket : plan_.buckets) tensors += bucket.slots.size();
  tensors_.resize(tensors);
  buffers_.reserve(plan_.buckets.size());
  for (Bucket const& bucket : plan_.buckets) {
    buffers_.push_back(bucket.count == 0 ? Buffer(nullptr, 0, bucket.dtype, {})
                                         : communicator.allocate(bucket.count, bucket.dtype));
    released_.emplace_back(kind, 0);
    BufferView const whole = buffers_.back().view();
    for (BucketSlot const& slot : bucket.slots) {
      tensors_[slot.tensor] =
          slot.count == 0 ? BufferView(nullptr, 0, bucket.dtype) : whole.slice(slot.offset, slot.count);
    }
  }
}

void BucketStorage::note_released(std::size_t index, std::size_t kept) const {
  released_[index].set(static_cast<std::ptrdiff_t>(kept) - static_cast<std::ptrdiff_t>(bucket(index).bytes()));
}

void BucketStorage::zero(std::size_t tensor) const noexcept {
  BufferView const& view = tensors_[tensor];
  if (view.count != 0) std::memset(view.data, 0, view.bytes());
}

void BucketStorage::copy_tensors_from(BucketStorage const& other) const noexcept {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].count != 0) std::memcpy(tensors_[i].data, other.tensors_[i].data, tensors_[i].bytes());
  }
}

}  // namespace weft
