#include "bucketing/transfer_cost.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "runtime/timeline.hpp"
#include "weft/event.hpp"

namespace weft {
namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr std::size_t kRatio = 16;  // of the larger size to the smaller
constexpr std::size_t kRepetitions = 5;

// Seconds from the end of one transfer to the end of the next. The first one waits for the slowest rank, touches fresh
// pages, and does not count.
double seconds_each(BucketSender& sender, BufferView const& whole) {
  using Clock = std::chrono::steady_clock;
  std::array<Work, kRepetitions + 1> works;
  std::array<Clock::time_point, kRepetitions + 1> finished;
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i] = sender.send(whole);
    finished[i] = now();  // kept only where a hook sent it inline
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].wait();
    WorkTimings const times = works[i].timings();
    if (times.finished != Clock::time_point()) finished[i] = times.finished;
  }
  std::array<double, kRepetitions> seconds{};
  for (std::size_t i = 0; i < kRepetitions; ++i) {
    seconds[i] = std::chrono::duration<double>(finished[i + 1] - finished[i]).count();
  }
  return *std::min_element(seconds.begin(), seconds.end());
}

/// The same, in the GPU's time.
double seconds_each_on_gpu(BucketSender& sender, BufferView const& whole) {
  std::array<Work, kRepetitions + 1> works;
  std::array<Event, kRepetitions + 1> finished;
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i] = sender.send(whole);
    works[i].wait_on(sender.stream());  // whatever a hook did elsewhere
    finished[i].record(sender.stream());
  }
  finished.back().synchronize();
  for (Work const& work : works) work.wait();  // throws what failed
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kRepetitions; ++i) {
    least = std::min(least, std::chrono::duration<double>(finished[i].elapsed_until(finished[i + 1])).count());
  }
  return least;
}

}  // namespace

TransferCost measure_transfer_cost(Communicator& communicator, BucketSender& sender, DataType dtype,
                                   std::size_t bytes) {
  std::size_t const unit = 64 * sender.shards();  // bytes; buckets are padded to it
  auto const rounded = [&](std::size_t size) { return std::max<std::size_t>(size / unit, 1) * unit; };
  std::size_t const large = std::max(rounded(std::min(bytes / 8, kMostBytes)), 2 * unit);
  std::size_t const small = rounded(large / kRatio);
  auto const& compute = sender.compute();
  Buffer const scratch = communicator.allocate(large / size_of(dtype), dtype, compute ? compute->device() : Device{});
  auto const measure = compute ? seconds_each_on_gpu : seconds_each;
  std::array<double, 2> seconds{measure(sender, scratch.view().slice(0, small / size_of(dtype))),
                                measure(sender, scratch.view())};
  std::span<double> const agreed(seconds);
  CollectiveOptions how;
  if (!compute) how.stream = sender.stream();  // these are in host memory
  communicator.all_reduce(agreed, agreed, ReduceOp::max, how).wait();
  TransferCost cost;
  cost.seconds_per_byte = std::max(0.0, seconds[1] - seconds[0]) / static_cast<double>(large - small);
  cost.seconds = std::max(0.0, seconds[0] - cost.seconds_per_byte * static_cast<double>(small));
  return cost;
}

}  // namespace weft
