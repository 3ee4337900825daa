#include "collectives/mpi_probe/wire_cases.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

namespace weft::test {
namespace {

struct Expected {
  double value = 0;
  double error = 0;
};

std::vector<float> contribution(int rank, std::size_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(rank) * 31 + 5);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

/// No more than δ: a block's largest magnitude is no more than that of all.
double rounding(WireFormat wire, double value, double largest) {
  return wire == WireFormat::bf16 ? 0x1p-8 * std::abs(value) : std::max(0x1p-4 * std::abs(value), 0x1p-17 * largest);
}

std::vector<Expected> expected(std::string const& hosts, WireFormat wire, ReduceOp op, std::size_t count) {
  std::map<char, std::vector<double>> sums;
  double largest = 0;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    auto& sum = sums[hosts[rank]];
    sum.resize(count);
    auto const mine = contribution(static_cast<int>(rank), count);
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += static_cast<double>(mine[i]) / (op == ReduceOp::avg ? static_cast<double>(hosts.size()) : 1);
      largest = std::max(largest, std::abs(sum[i]));
    }
  }
  std::vector<Expected> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (auto const& [host, sum] : sums) {
      all[i].value += sum[i];
      all[i].error += rounding(wire, sum[i], largest) + 1e-6 * std::abs(sum[i]);
    }
    all[i].error += rounding(wire, std::abs(all[i].value) + all[i].error, largest * static_cast<double>(sums.size()));
  }
  return all;
}

void require_within(double value, Expected const& wanted, double share, std::string const& what) {
  if (std::abs(value - wanted.value) <= share * wanted.error + 1e-6) return;
  throw std::runtime_error(what + ": " + std::to_string(value) + " instead of " + std::to_string(wanted.value) +
                           ", which may be off by " + std::to_string(share * wanted.error));
}

void require_equal_everywhere(Communicator& world, std::vector<float> const& values) {
  std::vector<float> least = values;
  std::vector<float> most = values;
  world.all_reduce(std::span<float const>(values), std::span(least), ReduceOp::min);
  world.all_reduce(std::span<float const>(values), std::span(most), ReduceOp::max);
  if (least != values || most != values) throw std::runtime_error("ranks have different results");
}

}  // namespace

void check_wire_format(Communicator& world, std::string const& hosts) {
  auto const wire = world.options().config->wire;
  for (std::size_t const count : {1025, 4099, 700'001}) {
    for (ReduceOp const op : {ReduceOp::sum, ReduceOp::avg}) {
      auto const wanted = expected(hosts, wire, op, count);
      auto values = contribution(world.rank(), count);
      world.all_reduce(std::span<float const>(values), std::span(values), op);
      for (std::size_t i = 0; i < count; ++i) require_within(values[i], wanted[i], 1, "element " + std::to_string(i));
      require_equal_everywhere(world, values);
    }
  }
  constexpr std::size_t kCount = 2000;
  constexpr int kCalls = 50;
  auto const wanted = expected(hosts, wire, ReduceOp::avg, kCount);
  auto const mine = contribution(world.rank(), kCount);
  auto const feedback = std::make_shared<WireFeedback>();
  std::vector<double> sum(kCount);
  for (int call = 0; call < kCalls; ++call) {
    std::vector<float> got(kCount);
    world.all_reduce(std::span<float const>(mine), std::span(got), ReduceOp::avg, {.feedback = feedback});
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(got[i]);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    require_within(sum[i] / kCalls, wanted[i], 3.0 / kCalls, "mean of element " + std::to_string(i));
  }
}

}  // namespace weft::test
