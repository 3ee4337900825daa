#include "collectives/p2p/measure_network.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>

#include "collectives/p2p/algorithms.hpp"
#include "runtime/timeline.hpp"

namespace weft::p2p {
namespace {

constexpr std::size_t kFewBytes = 8;
constexpr std::size_t kSmall = std::size_t{16} << 10;
constexpr std::size_t kLarge = std::size_t{256} << 10;
constexpr double kMostSmall = 2e-3;
/// Numbers of exchanges; the first ones set up connections.
constexpr int kWarmUps = 3;
constexpr int kFewBytesTimes = 20;
constexpr int kSmallTimes = 4;
constexpr int kLargeTimes = 3;
/// No network is faster; less would come of a clock that is too coarse.
constexpr double kLeastAlpha = 50e-9;
constexpr double kLeastBeta = 1e-13;

class Measurement {
 public:
  Measurement(Transport& transport, int distance)
      : transport_(transport),
        to_((transport.rank() + distance) % transport.size()),
        from_((transport.rank() - distance + transport.size()) % transport.size()),
        sent_(kLarge),
        received_(kLarge) {}

  /// Seconds of the fastest of several exchanges.
  double fastest(std::size_t bytes, int times) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < times; ++i) {
      auto const start = now();
      transport_.sendrecv(to_, std::span(sent_).first(bytes), from_, std::span(received_).first(bytes));
      best = std::min(best, std::chrono::duration<double>(now() - start).count());
    }
    return best;
  }

  /// The largest `mine` of all ranks.
  double most(double mine) {
    Call call;
    call.contract = {.count = 1, .operation = Operation::all_reduce, .dtype = DataType::f64, .reduce = ReduceOp::max};
    call.send = call.recv = &mine;
    run(*find_algorithm(Operation::all_reduce, "recursive_doubling"), transport_, call);
    return mine;
  }

 private:
  Transport& transport_;
  int to_;
  int from_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
};

}  // namespace

NetworkCosts measure_network(Transport& transport, int distance) {
  Measurement measurement(transport, distance);
  static_cast<void>(measurement.fastest(kFewBytes, kWarmUps));
  double const few = measurement.fastest(kFewBytes, kFewBytesTimes);
  double long_s = measurement.fastest(kSmall, kSmallTimes);
  std::size_t long_bytes = kSmall;
  if (measurement.most(long_s) <= kMostSmall) {  // all go on, or none
    long_s = measurement.fastest(kLarge, kLargeTimes);
    long_bytes = kLarge;
  }
  double const per_byte = (long_s - few) / static_cast<double>(long_bytes - kFewBytes);
  return {measurement.most(std::max(kLeastAlpha, few)), measurement.most(std::max(kLeastBeta, per_byte))};
}

int farthest(std::vector<int> const& hosts) {
  auto const ranks = hosts.size();
  int best = 1;
  std::size_t most = 0;
  for (std::size_t distance = 1; distance < ranks; ++distance) {
    std::size_t apart = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) apart += hosts[rank] != hosts[(rank + distance) % ranks] ? 1 : 0;
    if (apart > most) {
      most = apart;
      best = static_cast<int>(distance);
    }
    if (most == ranks) break;
  }
  return best;
}

}  // namespace weft::p2p
