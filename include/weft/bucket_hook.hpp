#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/bucket_plan.hpp"
#include "weft/buffer.hpp"
#include "weft/communicator.hpp"
#include "weft/reduce_op.hpp"
#include "weft/stream.hpp"
#include "weft/work.hpp"

namespace weft {

/// A bucket that is due to be sent; valid during the hook's call only, what its members refer to longer.
struct GradientBucket {
  std::size_t index = 0;   ///< in launch order
  BucketPlan const& plan;  ///< plan.buckets[index].slots: the tensors in it
  BufferView whole;        ///< this rank's gradients, in symmetric memory; between tensors and at the end zeros
  BufferView mine;         ///< what is to be reduced: `whole`, or where results are sharded a part, perhaps elsewhere
  ReduceOp op = ReduceOp::avg;
  Communicator& communicator;
  Stream const& stream;  ///< buckets run on it one after the other
  /// By tensor: 0 where this rank has no gradient in this step, and perhaps no rank has, so that what arrives counts
  /// for nothing; zeros are sent. Valid during the call. Empty under UnusedGradients::zero: zeros are gradients like
  /// others.
  std::span<std::uint8_t const> here{};
};

/// Sends a bucket in the Bucketer's stead. When the Work it returns completes, `mine` holds the ranks' gradients
/// reduced, the same bits on every rank that has the same elements.
///
/// Called by the thread that marks gradients, from mark_ready() or finish(), once a step for each bucket with elements,
/// in launch order, and must return soon. All ranks' hooks make the same calls on the communicator in the same order,
/// all on the stream, or without one (which holds backward up, and waits for what is enqueued before). What else there
/// is to do (conversions, say) goes to the stream by enqueue_work(). Buffers live on until their last use has
/// completed. The Bucketer itself, and a Work of a bucket that was not waited for, are out of bounds.
///
/// Of gradients on a GPU the host waits for nothing: what a hook enqueues on the stream (collectives, kernels) is part
/// of sending the bucket, and its Work is for what it does elsewhere; a failure there surfaces from later calls.
///
/// What a hook throws, or its Work, fails that step on every rank: the communicator is aborted with a reason that names
/// rank, bucket and cause. While BucketPolicy::optimal measures what transfers cost, a hook is given buckets of a plan
/// without tensors.
using BucketHook = std::function<Work(GradientBucket const&)>;

}  // namespace weft
