#include "bucketing/bucket_storage.hpp"

#include <cstring>
#include <utility>

#include "runtime/stream_impl.hpp"

namespace weft {

namespace {

Buffer allocate_bucket(Communicator& communicator, std::size_t count, DataType dtype, Device device) {
  if (count == 0) return {nullptr, 0, dtype, device};
  return communicator.allocate(count, dtype, device);
}

std::size_t tensors_in(BucketPlan const& plan) {
  std::size_t tensors = 0;
  for (Bucket const& bucket : plan.buckets) tensors += bucket.slots.size();
  return tensors;
}

}  // namespace

BucketStorage::BucketStorage(Communicator& communicator, BucketPlan plan, MemoryKind kind,
                             std::optional<Stream> const& on)
    : plan_(std::move(plan)), on_(on), kind_(kind), tensors_(tensors_in(plan_)) {
  MemoryScope const scope(kind);
  Device const device = on ? on->device() : Device{};
  buffers_.reserve(plan_.buckets.size());
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    buffers_.push_back(allocate_bucket(communicator, plan_.buckets[b].count, plan_.buckets[b].dtype, device));
    released_.emplace_back(kind, 0);
    lay_out_tensors(b);
  }
}

BucketStorage::BucketStorage(Communicator& communicator, BucketPlan plan, std::optional<Stream> const& on,
                             std::size_t shards)
    : plan_(std::move(plan)),
      on_(on),
      kind_(MemoryKind::gradients),
      tensors_(tensors_in(plan_)),
      bucket_of_(tensors_.size()) {
  MemoryScope const scope(kind_);
  Device const device = on ? on->device() : Device{};
  if (!on) turns_ = std::make_unique<BucketTurns>(communicator, plan_);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    Bucket const& bucket = plan_.buckets[b];
    parts_.push_back(allocate_bucket(communicator, bucket.count / shards, bucket.dtype, device));
    buffers_.emplace_back(nullptr, 0, bucket.dtype, device);
    released_.emplace_back(kind_, 0);
    for (BucketSlot const& slot : bucket.slots) {
      bucket_of_[slot.tensor] = b;
      tensors_[slot.tensor] = BufferView(nullptr, 0, bucket.dtype, device);
    }
  }
}

void BucketStorage::lay_out_tensors(std::size_t bucket) const {
  BufferView const whole = buffers_[bucket].view();
  for (BucketSlot const& slot : plan_.buckets[bucket].slots) {
    tensors_[slot.tensor] =
        slot.count == 0 ? BufferView(nullptr, 0, whole.dtype, whole.device) : whole.slice(slot.offset, slot.count);
  }
}

void BucketStorage::fetch(std::size_t index) const {
  Bucket const& bucket = plan_.buckets[index];
  if (bucket.count == 0 || buffers_[index].data() != nullptr) return;
  MemoryScope const scope(kind_);
  buffers_[index] = turns_ ? turns_->take(index) : on_->impl().allocate(bucket.count, bucket.dtype);
  lay_out_tensors(index);
}

void BucketStorage::release(std::size_t index, Stream& stream, Work const& reduced) const {
  if (buffers_[index].data() == nullptr) return;
  Device const device = buffers_[index].view().device;
  Buffer whole = std::exchange(buffers_[index], Buffer(nullptr, 0, plan_.buckets[index].dtype, device));
  if (!turns_) return stream.impl().release(std::move(whole));
  turns_->send(index);
  stream.enqueue([turns = turns_.get(), index, reduced] {
    if (!reduced.error()) turns->leave(index);
  });
}

void BucketStorage::note_released(std::size_t index, std::size_t kept) const {
  released_[index].set(static_cast<std::ptrdiff_t>(kept) - static_cast<std::ptrdiff_t>(bucket(index).bytes()));
}

void BucketStorage::zero(std::size_t tensor) const {
  BufferView const view = this->tensor(tensor);
  if (view.count == 0) return;
  if (on_) return on_->impl().zero(view.data, view.bytes());
  std::memset(view.data, 0, view.bytes());
}

void BucketStorage::copy(void* to, BufferView const& from) const {
  if (from.count == 0) return;
  if (on_) return on_->impl().copy(to, from.data, from.bytes());
  std::memcpy(to, from.data, from.bytes());
}

Buffer BucketStorage::room_for(std::size_t tensor) const {
  MemoryScope const scope(kind_);
  BufferView const view = this->tensor(tensor);
  return on_ ? on_->impl().allocate(view.count, view.dtype) : Buffer::host(view.count, view.dtype);
}

void BucketStorage::copy_out(std::size_t tensor, Buffer const& to) const {
  copy(to.data(), this->tensor(tensor));
}

void BucketStorage::copy_back(std::size_t tensor, Buffer const& from) const {
  copy(this->tensor(tensor).data, from.view());
}

void BucketStorage::copy_tensors_from(BucketStorage const& other) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (other.comes_and_goes() && other.buffers_[other.bucket_of_[i]].data() == nullptr) continue;
    copy(tensor(i).data, other.tensors_[i]);
  }
}

}  // namespace weft
