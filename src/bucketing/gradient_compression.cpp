#include "weft/gradient_compression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/optim/compress.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "optim/cuda/on_gpu.hpp"
#include "runtime/stream_impl.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

// Overwrites f32, bf16 or f16 memory with NaN.
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
    if (bucket.whole.device.type != DeviceType::cpu) return send_on_device(bucket);
    check_residuals(bucket.plan.buckets[bucket.index].slots);
    BufferView const wire = wire_.view().slice(0, bucket.whole.count);
    BufferView const part =
        sharded
            ? wire.slice(static_cast<std::size_t>(bucket.communicator.rank()) * bucket.mine.count, bucket.mine.count)
            : wire;
    Work const narrowed = enqueue_work(
        bucket.stream, [self = shared_from_this(), whole = bucket.whole, wire,
                        slots = bucket.plan.buckets[bucket.index].slots, counting = with_residuals(bucket)] {
          self->narrow(whole, wire, slots, counting);
          for (BucketSlot const& slot : slots) {
            if (self->options_.poison) overwrite(whole.slice(slot.offset, slot.count));
          }
        });
    Work const reduced = reduce(bucket, wire, part, on_stream);
    return enqueue_work(bucket.stream, [self = shared_from_this(), narrowed, reduced, wire, part, mine = bucket.mine] {
      narrowed.wait();  // neither blocks: both were on this stream
      reduced.wait();
      kernels::convert(part.data, part.dtype, mine.data, mine.dtype, mine.count);
      if (self->options_.poison) overwrite(wire);
    });
  }

  [[nodiscard]] std::span<float const> residual(std::size_t tensor) {
    if (tensor < on_device_.size() && on_device_[tensor].data() != nullptr) fetch(tensor);
    return tensor < residuals_.size() ? std::span<float const>(residuals_[tensor]) : std::span<float const>();
  }
  void set_residual(std::size_t tensor, std::vector<float> values) {
    if (!options_.error_feedback) return;
    if (tensor >= residuals_.size()) residuals_.resize(tensor + 1);
    residuals_[tensor] = std::move(values);
    if (tensor < on_device_.size()) on_device_[tensor] = Buffer();  // so the next step uploads this
  }

 private:
  // Everything is enqueued on the stream: before the collective one kernel, or one for each tensor that has residuals,
  // and one kernel behind it.
  Work send_on_device([[maybe_unused]] GradientBucket const& bucket) {
#ifdef WEFT_CUDA_TRAINING
    if (options_.poison) {
      throw Error(ErrorCode::unsupported, "compress_gradients: options.poison is for gradients in host memory");
    }
    BufferView const wire = wire_.view().slice(0, bucket.whole.count);
    auto const rank = static_cast<std::size_t>(bucket.communicator.rank());
    bool const sharded = bucket.mine.count != bucket.whole.count;
    BufferView const part = sharded ? wire.slice(rank * bucket.mine.count, bucket.mine.count) : wire;
    if (options_.error_feedback) {
      compress_on_device(bucket, wire);
    } else {
      cuda::on_gpu::convert(bucket.whole, wire, bucket.stream);
    }
    Work reduced = reduce(bucket, wire, part, {bucket.stream, {}});
    cuda::on_gpu::convert(part, bucket.mine, bucket.stream);
    return reduced;
#else
    return {};
#endif
  }

#ifdef WEFT_CUDA_TRAINING
  void compress_on_device(GradientBucket const& bucket, BufferView const& wire) {
    stream_ = bucket.stream;
    std::vector<BucketSlot> const& slots = bucket.plan.buckets[bucket.index].slots;
    check_residuals(slots);
    for (BucketSlot const& slot : slots) {  // for every tensor, as narrow() does
      if (slot.count != 0) (void)residual_on_device(slot);
    }
    stream_->impl().zero(wire.data, wire.bytes());  // what lies between tensors
    for (BucketSlot const& slot : with_residuals(bucket)) {
      if (slot.count == 0) continue;
      cuda::on_gpu::compress_with_feedback(bucket.whole.slice(slot.offset, slot.count), residual_on_device(slot),
                                           wire.slice(slot.offset, slot.count), bucket.stream);
    }
  }

  // The first time, and after set_residual(), uploads the host's residual, or zeros.
  [[nodiscard]] BufferView residual_on_device(BucketSlot const& slot) {
    on_device_.resize(residuals_.size());
    Buffer& residual = on_device_[slot.tensor];
    if (residual.data() != nullptr) return residual.view();
    residual = stream_->impl().allocate(slot.count, DataType::f32);
    std::vector<float> const& values = residuals_[slot.tensor];
    if (values.empty()) return residual.view();
    stream_->impl().copy(residual.data(), values.data(), values.size() * sizeof(float));
    stream_->synchronize();  // before anybody changes `values`
    return residual.view();
  }
#endif

  // Copies a residual to the host, for the caller.
  void fetch(std::size_t tensor) {
    residuals_[tensor].resize(on_device_[tensor].count());
    stream_->impl().copy(residuals_[tensor].data(), on_device_[tensor].data(), on_device_[tensor].view().bytes());
    stream_->synchronize();
  }

  static Work reduce(GradientBucket const& bucket, BufferView const& whole, BufferView const& mine,
                     CollectiveOptions const& on_stream) {
    bool const in_place = mine.data == whole.data && mine.count == whole.count;  // one rank's part may lie elsewhere
    if (in_place) return bucket.communicator.all_reduce(whole, whole, bucket.op, on_stream);
    return bucket.communicator.reduce_scatter(whole, mine, bucket.op, on_stream);
  }

  // Makes room for the plan's largest bucket. Buckets follow each other on the stream, so all can use the same memory.
  void make_room(GradientBucket const& bucket) {
    std::size_t most = 0;
    std::size_t tensors = 0;
    for (Bucket const& one : bucket.plan.buckets) {
      if (one.dtype == DataType::f32) most = std::max(most, one.count);
      tensors += one.slots.size();
    }
    if (wire_.count() < most) {
      Stream(bucket.stream).synchronize();
      wire_ = bucket.communicator.allocate(most, options_.wire, bucket.whole.device);
    }
    if (options_.error_feedback && residuals_.size() < tensors) residuals_.resize(tensors);
  }

  void check_residuals(std::vector<BucketSlot> const& slots) const {
    for (BucketSlot const& slot : slots) {
      std::size_t const count = slot.tensor < residuals_.size() ? residuals_[slot.tensor].size() : 0;
      if (count == 0 || count == slot.count) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("compress_gradients: {} residuals of tensor {}, which has {} "
                              "elements",
                              count, slot.tensor, slot.count));
    }
  }

  // Residuals of the other tensors stay: where no rank has a gradient, what arrives does not count, and they would be
  // lost.
  static std::vector<BucketSlot> with_residuals(GradientBucket const& bucket) {
    std::vector<BucketSlot> slots = bucket.plan.buckets[bucket.index].slots;
    if (!bucket.here.empty())
      std::erase_if(slots, [&](BucketSlot const& slot) { return bucket.here[slot.tensor] == 0; });
    return slots;
  }

  // Every rank keeps residuals of all that is sent, whichever gradients it has: a checkpoint needs each rank's.
  void narrow(BufferView const& whole, BufferView const& wire, std::vector<BucketSlot> const& slots,
              std::vector<BucketSlot> const& counting) {
    if (!options_.error_feedback) return kernels::convert(whole.data, whole.dtype, wire.data, wire.dtype, whole.count);
    std::memset(wire.data, 0, wire.bytes());  // what lies between tensors, and gradients that are not here
    for (BucketSlot const& slot : slots) residuals_[slot.tensor].resize(slot.count, 0.0F);
    for (BucketSlot const& slot : counting) {
      kernels::compress_with_feedback(static_cast<float const*>(whole.data) + slot.offset,
                                      residuals_[slot.tensor].data(), wire.slice(slot.offset, slot.count).data,
                                      wire.dtype, slot.count);
    }
  }

  CompressionOptions options_;
  Buffer wire_;
  std::vector<std::vector<float>> residuals_;  // by tensor, as buckets may change
  std::vector<Buffer> on_device_;              // the same on a GPU, where residuals_ has only copies
  std::optional<Stream> stream_;               // the stream of on_device_
};

GradientCompressor::GradientCompressor(CompressionOptions const& options) : impl_(std::make_shared<Impl>(options)) {
  if (options.wire == DataType::bf16 || options.wire == DataType::f16) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("compress_gradients: wire type {}; bf16 and f16 can be", to_string(options.wire)));
}

BucketHook GradientCompressor::hook() const {
  return [impl = impl_](GradientBucket const& bucket) { return impl->send(bucket); };
}

std::span<float const> GradientCompressor::residual(std::size_t tensor) const {
  return impl_->residual(tensor);
}

void GradientCompressor::set_residual(std::size_t tensor, std::vector<float> values) {
  impl_->set_residual(tensor, std::move(values));
}

BucketHook compress_gradients(CompressionOptions const& options) {
  return GradientCompressor(options).hook();
}

}  // namespace weft
