#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bucketing/bucket_storage.hpp"
#include "bucketing/device_timing.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// The all_gathers that bring every rank the updated parameters, bucket by bucket. Not thread-safe.
class ParameterGathers {
 public:
  /// `communicator` must outlive it. On a GPU `compute` is the stream that writes and uses parameters: it waits, and
  /// the host does not. With `timed` gathers on a GPU are timed by events.
  ParameterGathers(Communicator& communicator, Stream stream, std::optional<Stream> compute, bool timed)
      : communicator_(communicator),
        stream_(std::move(stream)),
        compute_(std::move(compute)),
        timed_(compute_ && timed) {}

  /// Gathers the buckets of `plan` from now on. Those of an earlier plan must have been waited for.
  void use(BucketPlan const& plan);

  /// Collective: sends bucket `bucket`, of which this rank's part is up to date, and returns at once. All ranks launch
  /// the same buckets in the same order, each once between two wait_for_all(). Only the first one carries `tag`, so
  /// that the others may be fused.
  void launch(BucketStorage const& parameters, std::size_t bucket, std::uint32_t tag = 0);

  /// Blocks until the bucket has arrived, if it is under way; on a GPU `compute` waits instead. On the host also waits
  /// for the first bucket launched, which carries the tag: where tags differ, no bucket has arrived. @throws Error
  /// naming the bucket.
  void wait_for(std::size_t bucket) const;
  /// Waits for all buckets; then timings() are theirs, except on a GPU.
  void wait_for_all();
  /// In launch order; `ready` is when each was launched.
  [[nodiscard]] std::span<BucketTiming const> timings() const noexcept { return timings_; }
  /// The same on a GPU, see Bucketer::timings_since().
  [[nodiscard]] std::vector<BucketTiming> timings_since(Event const& origin,
                                                        std::chrono::steady_clock::time_point at) const {
    return read_all(device_timings_, origin, at);
  }

  /// For a destructor: waits for what is under way, and logs a failure if `log_failures`.
  void drain(bool log_failures) const;

 private:
  void wait_for_one(std::size_t bucket) const;

  Communicator& communicator_;
  Stream stream_;
  std::optional<Stream> compute_;
  bool timed_;
  std::vector<Work> works_;         ///< by bucket
  std::vector<std::string> names_;  ///< by bucket: its parameters
  struct Launched {
    std::size_t bucket;
    std::size_t bytes;
    std::chrono::steady_clock::time_point at;
    std::optional<DeviceTiming> timing;
  };
  std::vector<Launched> launched_;  ///< of this step, in launch order; none once all were waited for
  std::vector<BucketTiming> timings_;
  std::vector<TimedTransfer> device_timings_;  ///< of the last step
};

}  // namespace weft
