#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bucketing/bucket_layout.hpp"
#include "weft/bucket_plan.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void check_times(std::span<TensorSpec const> specs, std::span<double const> ready, TransferCost const& cost) {
  if (ready.size() != specs.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket plan: {} ready times for {} tensors", ready.size(), specs.size()));
  }
  auto const odd = std::find_if(ready.begin(), ready.end(), [](double time) { return !std::isfinite(time); });
  if (odd != ready.end()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket plan: tensor {} is ready at {}", odd - ready.begin(), *odd));
  }
  check_cost(cost);
}

// The best way to send the first tensors of the order, as many as its index in prefixes_ says.
struct Prefix {
  double arrived = -std::numeric_limits<double>::infinity();
  std::size_t buckets = 0;
  std::size_t last_begins = 0;  // where in the order its last bucket begins

  [[nodiscard]] bool better_than(Prefix const& other) const noexcept {
    return arrived != other.arrived ? arrived < other.arrived : buckets < other.buckets;
  }
};

class Search {
 public:
  Search(std::span<TensorSpec const> specs, std::span<std::size_t const> order, std::span<double const> ready,
         TransferCost const& cost, std::size_t shards)
      : specs_(specs), order_(order), cost_(cost), shards_(shards), prefixes_(1) {
    prefixes_.reserve(order.size() + 1);
    double latest = -std::numeric_limits<double>::infinity();
    for (std::size_t const tensor : order) {
      latest = std::max(latest, ready[tensor]);
      prefixes_.push_back(extend(prefixes_.size() - 1, latest));
    }
  }

  [[nodiscard]] BucketPlan plan() const {
    BucketPlan plan;
    for (std::size_t end = order_.size(); end > 0; end = prefixes_[end].last_begins) {
      plan.buckets.push_back(bucket(prefixes_[end].last_begins, end));
    }
    std::reverse(plan.buckets.begin(), plan.buckets.end());
    return plan;
  }

 private:
  // Sends the first `last` + 1 tensors, all of which are ready at `ready`.
  [[nodiscard]] Prefix extend(std::size_t last, double ready) const {
    DataType const dtype = specs_[order_[last]].dtype;
    (void)padded_count(order_[last], specs_[order_[last]]);  // throws for an unknown type
    Prefix best{std::numeric_limits<double>::infinity(), 0, last};
    Bucket sent{dtype, 0, {}};
    std::size_t const most = std::numeric_limits<std::ptrdiff_t>::max() / size_of(dtype);
    for (std::size_t first = last + 1; first-- > 0 && specs_[order_[first]].dtype == dtype;) {
      std::size_t const padded = padded_count(order_[first], specs_[order_[first]]);
      if (padded > most - sent.count) break;
      sent.count += padded;
      double const takes = seconds(sent);
      // A bucket that begins earlier cannot be better: it is ready no sooner and takes no less.
      if (ready + takes > best.arrived) break;
      Prefix const candidate{std::max(prefixes_[first].arrived, ready) + takes, prefixes_[first].buckets + 1, first};
      if (candidate.better_than(best)) best = candidate;
    }
    return best;
  }

  [[nodiscard]] double seconds(Bucket whole) const {
    if (whole.count == 0) return 0;
    pad(whole, shards_);
    return cost_.seconds + cost_.seconds_per_byte * static_cast<double>(whole.bytes());
  }

  [[nodiscard]] Bucket bucket(std::size_t first, std::size_t end) const {
    Bucket bucket{specs_[order_[first]].dtype, 0, {}};
    for (std::size_t const tensor : order_.subspan(first, end - first)) {
      bucket.slots.push_back({tensor, bucket.count, specs_[tensor].count});
      bucket.count += padded_count(tensor, specs_[tensor]);
    }
    pad(bucket, shards_);
    return bucket;
  }

  std::span<TensorSpec const> specs_;
  std::span<std::size_t const> order_;
  TransferCost cost_;
  std::size_t shards_;
  std::vector<Prefix> prefixes_;  // by number of tensors
};

}  // namespace

void check_cost(TransferCost const& cost) {
  auto const possible = [](double part) { return std::isfinite(part) && part >= 0; };
  if (!possible(cost.seconds) || !possible(cost.seconds_per_byte)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("bucket plan: a bucket cannot cost {} s and {} s/byte",
                                                         cost.seconds, cost.seconds_per_byte));
  }
}

BucketPlan BucketPlan::optimal(std::span<TensorSpec const> specs, std::span<std::size_t const> order,
                               std::span<double const> ready, TransferCost const& cost, std::size_t shards) {
  check_layout(specs, order, shards);
  check_times(specs, ready, cost);
  return Search(specs, order, ready, cost, shards).plan();
}

}  // namespace weft
