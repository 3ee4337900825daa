#include "scheduler/tune/bucket_candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace weft {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string describe_size(std::size_t bytes) {
  return bytes < kMiB ? fmt::format("{:g} KiB", static_cast<double>(bytes) / 1024)
                      : fmt::format("{:g} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

/// A plan's tensors: their order, and by number what they are.
struct Tensors {
  std::vector<std::size_t> order;
  std::vector<TensorSpec> specs;
};

Tensors tensors_of(BucketPlan const& plan) {
  Tensors tensors;
  for (Bucket const& bucket : plan.buckets) {
    for (BucketSlot const& slot : bucket.slots) tensors.order.push_back(slot.tensor);
  }
  tensors.specs.resize(tensors.order.size());
  for (Bucket const& bucket : plan.buckets) {
    for (BucketSlot const& slot : bucket.slots) tensors.specs[slot.tensor] = {slot.count, bucket.dtype};
  }
  return tensors;
}

/// The caps that are tried, in an order in which the first few already span the range.
constexpr std::array<std::size_t, 9> kCaps{4 * kMiB, kMiB,     16 * kMiB, kMiB / 4, 64 * kMiB,
                                           2 * kMiB, 8 * kMiB, kMiB / 2,  32 * kMiB};

/// The first bucket and the last are small, as they are by default: communication then begins early and ends soon after
/// backward.
BucketSettings with_cap(std::size_t bytes) {
  return {{std::min(bytes, kMiB), bytes, std::min(bytes, std::max(bytes / 4, kMiB / 4))}, BucketPolicy::caps, true};
}

}  // namespace

std::string describe(BucketSettings const& settings) {
  std::string text =
      settings.policy == BucketPolicy::optimal
          ? std::string("buckets by ready times")
          : fmt::format("buckets of {} (first {}, last {})", describe_size(settings.limits.bytes),
                        describe_size(settings.limits.first_bytes), describe_size(settings.limits.last_bytes));
  if (!settings.overlap) text += ", all launched at the end of backward";
  return text;
}

std::string fingerprint(BucketPlan const& plan) {
  std::uint64_t digest = 0xcbf29ce484222325U;  // FNV-1a over words
  std::size_t elements = 0;
  auto const tensors = tensors_of(plan);
  for (TensorSpec const& spec : tensors.specs) {
    for (std::uint64_t const word : {static_cast<std::uint64_t>(spec.count), static_cast<std::uint64_t>(spec.dtype)}) {
      digest = (digest ^ word) * 0x100000001b3U;
    }
    elements += spec.count;
  }
  return fmt::format("{} tensors of {} elements {:016x}", tensors.specs.size(), elements, digest);
}

std::vector<TuningCandidate> bucket_candidates(BucketSettings const& now, BucketPlan const& plan,
                                               BucketChoices const& choices,
                                               std::function<void(BucketSettings const&)> const& set) {
  Tensors const tensors = tensors_of(plan);
  std::vector<TuningCandidate> candidates;
  auto const add = [&](BucketSettings const& settings) {
    candidates.push_back({describe(settings), [set, settings] { set(settings); }});
  };
  add(now);
  if (choices.moves && choices.replans && now.policy != BucketPolicy::optimal) {
    add({now.limits, BucketPolicy::optimal, true});
  }
  std::vector<BucketPlan> plans{BucketPlan::build(tensors.specs, tensors.order, now.limits, choices.shards)};
  if (now.policy != BucketPolicy::caps) plans.clear();
  for (std::size_t const cap : kCaps) {
    if (!choices.moves) break;
    BucketSettings const settings = with_cap(cap);
    BucketPlan made = BucketPlan::build(tensors.specs, tensors.order, settings.limits, choices.shards);
    if (std::find(plans.begin(), plans.end(), made) != plans.end()) continue;
    plans.push_back(std::move(made));
    add(settings);
  }
  BucketSettings at_other_times = now;
  at_other_times.overlap = !now.overlap;
  add(at_other_times);
  return candidates;
}

}  // namespace weft
