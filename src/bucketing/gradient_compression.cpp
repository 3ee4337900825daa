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

class Compressor : public std::enable_shared_from_this<Compressor> {
 public:
  explicit Compressor(CompressionOptions const& options) : options_(options) {}

  Work send(GradientBucket const& bucket) {
    CollectiveOptions const on_stream{bucket.stream, {}};
    bool const sharded = bucket.mine.count != bucket.whole.count;
    if (bucket.whole.dtype != DataType::f32) return reduce(bucket, bucket.whole, bucket.mine, on_stream);
    make_room(bucket);
    BufferView const wire = wire_.view().slice(0, bucket.whole.count);
    BufferView const part =
        sharded
            ? wire.slice(static_cast<std::size_t>(bucket.communicator.rank()) * bucket.mine.count, bucket.mine.count)
            : wire;
    Work const narrowed = enqueue_work(
        bucket.stream, [self = shared_from_this(), whole = bucket.whole, wire,
                        slots = bucket.plan.buckets[bucket.index].slots] { self->narrow(whole, wire, slots); });
    Work const reduced = reduce(bucket, wire, part, on_stream);
    return enqueue_work(bucket.stream, [self = shared_from_this(), narrowed, reduced, part, mine = bucket.mine] {
      narrowed.wait();  // both are over: they were on this stream
      reduced.wait();
      kernels::convert(part.data, part.dtype, mine.data, mine.dtype, mine.count);
    });
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

}  // namespace

BucketHook compress_gradients(CompressionOptions const& options) {
  if (options.wire != DataType::bf16 && options.wire != DataType::f16) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("compress_gradients: wire type {}; bf16 and f16 can be", to_string(options.wire)));
  }
  auto compressor = std::make_shared<Compressor>(options);
  return [compressor](GradientBucket const& bucket) { return compressor->send(bucket); };
}

}  // namespace weft
