#include "link.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <weft/bucket_plan.hpp>
#include <weft/error.hpp>

#include "local_tensors.hpp"

namespace train_gpt {
namespace {

/// Seconds that a step's forward and backward take here: the median of a few.
double measure_compute(weft::Communicator& world, Options const& options, GptModel& model,
                       BatchSampler const& sampler) {
  LocalTensors tensors(model.parameters(), options.seed);
  tensors.add_gradients();
  std::array<double, 3> seconds{};
  for (int i = -1; i < static_cast<int>(seconds.size()); ++i) {  // -1 warms caches up
    std::vector<Batch> const batches = sampler.sample(i + 1, options.accumulate);
    world.barrier();
    auto const start = std::chrono::steady_clock::now();
    for (Batch const& batch : batches) {
      (void)model.forward(batch, tensors);
      model.backward(batch, tensors);
    }
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
    seconds[static_cast<std::size_t>(std::max(i, 0))] = took.count();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

weft::BucketPlan plan_of(GptModel const& model, Options const& options) {
  std::vector<weft::TensorSpec> specs;
  for (GptParameters::Tensor const& tensor : model.parameters().tensors()) {
    specs.push_back({tensor.count, options.parameter_type()});
  }
  std::vector<std::size_t> order(specs.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return weft::BucketPlan::build(specs, order, options.bucketer().limits);
}

/// Solves the ring formula Σ 2(n−1)·latency + 2(n−1)/n·bytes/bandwidth = seconds over the buckets.
weft::EmulatedLink link_for(double seconds, weft::BucketPlan const& plan, int ranks) {
  // What is so slow that a step of this size takes notice is Ethernet, and TCP on it takes about this long.
  weft::EmulatedLink link{std::chrono::microseconds(50), 0.0};
  double const hops = 2.0 * (ranks - 1);
  double bytes = 0.0;
  for (weft::Bucket const& bucket : plan.buckets) {
    bytes += static_cast<double>(bucket.bytes());
  }
  double const latency =
      std::chrono::duration<double>(link.latency).count() * hops * static_cast<double>(plan.buckets.size());
  double const moving =
      std::max(seconds - latency, seconds / 10.0);  // a tiny model is all latency: keep the bandwidth finite
  link.bytes_per_second = hops / ranks * bytes / moving;
  return link;
}

}  // namespace

std::optional<weft::EmulatedLink> choose_link(weft::Communicator& world, Options const& options, GptModel& model,
                                              BatchSampler const& sampler) {
  if (!options.auto_link) {
    return options.link;
  }
  if (world.size() == 1) {
    throw weft::Error(weft::ErrorCode::invalid_argument,
                      "--link auto needs at least 2 ranks, there is 1; add --ranks 2");
  }
  std::array<double, 1> seconds{measure_compute(world, options, model, sampler)};
  world.all_reduce(std::span<double>(seconds), std::span<double>(seconds), weft::ReduceOp::max);
  weft::EmulatedLink link = link_for(seconds[0] / 2.0, plan_of(model, options), world.size());
  std::array<double, 1> bandwidth{link.bytes_per_second};
  world.broadcast(std::span<double>(bandwidth), 0);
  link.bytes_per_second = bandwidth[0];
  return link;
}

weft::Communicator connect(weft::Communicator& world, std::optional<weft::EmulatedLink> const& link) {
  weft::CommunicatorOptions options = world.options();
  options.emulated_link = link;
  return world.duplicate(options);
}

std::string describe(std::optional<weft::EmulatedLink> const& link) {
  return link ? link->describe() : "none";
}

std::string describe_carrier(weft::Communicator& world, std::optional<weft::EmulatedLink> const& link) {
  if (link) return describe(link);
  std::array<char, 256> mine{};
  char const* const told = std::getenv("WEFT_HOST_ID");
  if (told != nullptr) {
    std::string(told).copy(mine.data(), mine.size() - 1);
  } else {
    gethostname(mine.data(), mine.size() - 1);
  }
  std::vector<char> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather({mine.data(), mine.size(), weft::DataType::u8}, {all.data(), all.size(), weft::DataType::u8}).wait();
  std::set<std::string> hosts;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) hosts.insert(&all[at]);
  return hosts.size() == 1 ? "shared memory" : fmt::format("the network of {} hosts", hosts.size());
}

}  // namespace train_gpt
