#include "weft/gradient_compression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/optim/compress.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

// With NaN, of f32, bf16 and f16.
void overwrite(BufferView const& view) {
  if (view.count != 0) std::memset(view.data, 0xff, view.bytes());
}

}  // namespace

class GradientCompressor::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(CompressionOptions const& options) : options_(options) {}

  Work send(GradientBucket const& bucket) {
    CollectiveOptions const on_stream{bucket.stream, {}};
    bool const sharded = bucket.mine.count != bucket.whole.count;
    if (bucket.whole.dtype != DataType::f32) return reduce(bucket, bucket.whole, bucket.mine, on_stream);
    make_room(bucket);
    check_residuals(bucket.plan.buckets[bucket.index].slots);
    BufferView const wire = wire_.view().slice(0, bucket.whole.count);
    BufferView const part =
        sharded
            ? wire.slice(static_cast<std::size_t>(bucket.communicator.rank()) * bucket.mine.count, bucket.mine.count)
            : wire;
    Work const narrowed = enqueue_work(bucket.stream, [self = shared_from_this(), whole = bucket.whole, wire,
                                                       slots = bucket.plan.buckets[bucket.index].slots] {
      self->narrow(whole, wire, slots);
      for (BucketSlot const& slot : slots) {
        if (self->options_.poison) overwrite(whole.slice(slot.offset, slot.count));
      }
    });
    Work const reduced = reduce(bucket, wire, part, on_stream);
    return enqueue_work(bucket.stream, [self = shared_from_this(), narrowed, reduced, wire, part, mine = bucket.mine] {
      narrowed.wait();  // both are over: they were on this stream
      reduced.wait();
      kernels::convert(part.data, part.dtype, mine.data, mine.dtype, mine.count);
      if (self->options_.poison) overwrite(wire);
    });
  }

  [[nodiscard]] std::span<float const> residual(std::size_t tensor) const noexcept {
    return tensor < residuals_.size() ? std::span<float const>(residuals_[tensor]) : std::span<float const>();
  }
  void set_residual(std::size_t tensor, std::vector<float> values) {
    if (!options_.error_feedback) return;
    if (tensor >= residuals_.size()) residuals_.resize(tensor + 1);
    residuals_[tensor] = std::move(values);
  }

 private:
  static Work reduce(GradientBucket const& bucket, BufferView const& whole, BufferView const& mine,
                     CollectiveOptions const& on_stream) {
    if (mine.count == whole.count) return bucket.communicator.all_reduce(whole, whole, bucket.op, on_stream);
    return bucket.communicator.reduce_scatter(whole, mine, bucket.op, on_stream);
  }

  // For the plan's largest bucket: buckets follow each other on the stream, so they can share it.
  void make_room(GradientBucket const& bucket) {
    std::size_t most = 0;
    std::size_t tensors = 0;
    for (Bucket const& one : bucket.plan.buckets) {
      if (one.dtype == DataType::f32) most = std::max(most, one.count);
      tensors += one.slots.size();
    }
    if (wire_.count() < most) {
      Stream(bucket.stream).synchronize();
      wire_ = bucket.communicator.allocate(most, options_.wire);
    }
    if (options_.error_feedback && residuals_.size() < tensors) residuals_.resize(tensors);
  }

  void check_residuals(std::vector<BucketSlot> const& slots) const {
    for (BucketSlot const& slot : slots) {
      std::size_t const count = residual(slot.tensor).size();
      if (count == 0 || count == slot.count) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("compress_gradients: {} residuals of tensor {}, which has {} "
                              "elements",
                              count, slot.tensor, slot.count));
    }
  }

  void narrow(BufferView const& whole, BufferView const& wire, std::vector<BucketSlot> const& slots) {
    if (!options_.error_feedback) return kernels::convert(whole.data, whole.dtype, wire.data, wire.dtype, whole.count);
    std::memset(wire.data, 0, wire.bytes());  // what lies between tensors
    for (BucketSlot const& slot : slots) {
      std::vector<float>& residual = residuals_[slot.tensor];
      residual.resize(slot.count, 0.0F);
      kernels::compress_with_feedback(static_cast<float const*>(whole.data) + slot.offset, residual.data(),
                                      wire.slice(slot.offset, slot.count).data, wire.dtype, slot.count);
    }
  }

  CompressionOptions options_;
  Buffer wire_;
  std::vector<std::vector<float>> residuals_;  // by tensor: buckets may change
};

GradientCompressor::GradientCompressor(CompressionOptions const& options) : impl_(std::make_shared<Impl>(options)) {
  if (options.wire == DataType::bf16 || options.wire == DataType::f16) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("compress_gradients: wire type {}; bf16 and f16 can be", to_string(options.wire)));
}

BucketHook GradientCompressor::hook() const {
  return [impl = impl_](GradientBucket const& bucket) { return impl->send(bucket); };
}

std::span<float const> GradientCompressor::residual(std::size_t tensor) const noexcept {
  return impl_->residual(tensor);
}

void GradientCompressor::set_residual(std::size_t tensor, std::vector<float> values) {
  impl_->set_residual(tensor, std::move(values));
}

BucketHook compress_gradients(CompressionOptions const& options) {
  return GradientCompressor(options).hook();
}

}  // namespace weft
