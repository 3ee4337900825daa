#include "bucketing/active_ranks.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft {

void ActiveRanks::announce(Communicator& communicator, Stream const& stream, bool active) {
  mine_ = active ? 1 : 0;
  work_ = communicator.all_reduce(std::span<std::int32_t const>(&mine_, 1), std::span<std::int32_t>(&all_, 1),
                                  ReduceOp::sum, {host_.beside(stream, "how many ranks have data"), {}});
  announced_ = true;
}

int ActiveRanks::count() const {
  work_.wait();
  return all_;
}

void ActiveRanks::check_all_or_none(int ranks) const {
  if (!options_.throw_on_early_termination) return;
  int const active = count();
  if (active == 0 || active == ranks) return;
  throw Error(
      ErrorCode::mismatch,
      fmt::format("bucketer: {} of {} ranks ran out of data before the others, and options.throw_on_early_termination "
                  "says that nobody goes on alone; give every rank as many steps",
                  ranks - active, ranks));
}

float ActiveRanks::factor(ReduceOp op, int ranks) const {
  if (options_.divisor == JoinDivisor::all_ranks || op != ReduceOp::avg) return 1;
  return static_cast<float>(ranks) / static_cast<float>(count());
}

void ActiveRanks::drain() const noexcept {
  try {
    work_.wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever asked for the result has been told
  }
}

void check_join(JoinOptions const& options, BucketerOptions const& buckets, std::vector<TensorSpec> const& specs) {
  if (options.divisor != JoinDivisor::all_ranks && options.divisor != JoinDivisor::active_ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucketer: unknown divisor {}", static_cast<int>(options.divisor)));
  }
  if (options.divisor == JoinDivisor::all_ranks || buckets.op != ReduceOp::avg) return;
  if (buckets.on_shard) {
    throw Error(ErrorCode::unsupported, "bucketer: on_shard would see shards before JoinDivisor::active_ranks divides");
  }
  for (TensorSpec const& spec : specs) {
    if (spec.dtype == DataType::f32 || spec.dtype == DataType::bf16 || spec.dtype == DataType::f16) continue;
    throw Error(ErrorCode::unsupported,
                fmt::format("bucketer: JoinDivisor::active_ranks divides f32, bf16 and f16, but a tensor is {}",
                            to_string(spec.dtype)));
  }
}

}  // namespace weft
