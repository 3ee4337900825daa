#include "collectives/hierarchical/hierarchical_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/merged_call.hpp"
#include "collectives/partition.hpp"
#include "weft/error.hpp"

namespace weft::hierarchical {

HierarchicalBackend::HierarchicalBackend(Levels levels, HostLayout layout, HostOrder order, WireFormat wire,
                                         std::unique_ptr<Explainer> explainer)
    : intra_(std::move(levels.intra)),
      inter_(std::move(levels.inter)),
      between_(std::move(levels.between)),
      work_(levels.work),
      layout_(std::move(layout)),
      order_(std::move(order)),
      wire_(wire),
      explainer_(std::move(explainer)) {}

Buffer HierarchicalBackend::workspace(std::size_t count, DataType dtype) {
  try {
    return work_.memory(count, dtype);
  } catch (Error const& error) {
    fail(error.code(), fmt::format("rank {}: {}", rank(), error.what()));
    throw;
  }
}

void HierarchicalBackend::run_inter(Call const& given, Operation operation) {
  auto const call = step_of(given, ++inter_calls_);
  try {
    (inter_.get()->*operation)(call);
  } catch (Error const& error) {
    // Of a mismatch intra need not be told: all ranks have found it themselves.
    if (error.code() != ErrorCode::mismatch) intra_->fail(error.code(), error.what());
    throw;
  }
}

void HierarchicalBackend::run_intra(Call const& given, Operation operation) {
  auto const call = step_of(given, ++intra_calls_);
  try {
    (intra_.get()->*operation)(call);
  } catch (Error const& error) {
    inter_->fail(error.code(), error.what());
    throw;
  }
}

std::size_t HierarchicalBackend::flat_limit(Call const& call) const noexcept {
  auto const operation = call.contract.operation;
  auto const combines = pattern_of(operation) == Pattern::combine;
  // Measured limits may differ from run to run, but results must not. So the limit is fixed where the way changes the
  // bits: for what is rounded between hosts, and for reduce_scatter_v, which inter does not reduce in the order of
  // hosts.
  auto const is_fixed =
      combines && (is_rounded(call) || (operation == weft::Operation::reduce_scatter_v &&
                                        order_.applies_to(call.contract.dtype, call.contract.reduce)));
  return is_fixed ? kAssumedLimit : limits_[pattern_of(operation)];
}

bool HierarchicalBackend::is_flat(Call const& call) const noexcept {
  auto const has_parts = [&] {
    switch (call.contract.operation) {
      case weft::Operation::reduce_scatter:
      case weft::Operation::all_gather:
      case weft::Operation::gather:
      case weft::Operation::scatter:
      case weft::Operation::all_to_all: return true;
      default: return false;  // the whole buffer is counted
    }
  };
  auto const limit = flat_limit(call);
  return call.bytes() <= (has_parts() ? limit / ranks() : limit);
}

void HierarchicalBackend::run_flat(Call const& call, Operation operation) {
  if (explainer_) {
    explainer_->note(call.contract.operation, "any memory", "flat", [&] {
      auto const pattern = pattern_of(call.contract.operation);
      auto text = fmt::format(
          "one exchange between all ranks, for buffers of up to {} in all, scans, and parts that some ranks do not "
          "know",
          describe_bytes(flat_limit(call)));
      if (!costs_.measured[pattern]) return text;
      auto const cost = [](WayCost const& way) {
        return fmt::format("{:.3g} us + {:.3g} ns/B", way.alpha_s * 1e6, way.beta_s_per_byte * 1e9);
      };
      return fmt::format("{}; measured: {}, by hosts {}", text, cost(costs_.flat[pattern]),
                         cost(costs_.by_hosts[pattern]));
    });
  }
  run_inter(call, operation);
}

void HierarchicalBackend::enter(Call const& call, char const* way) {
  if (explainer_) {
    explainer_->note(call.contract.operation, "any memory", way,
                     [&] { return fmt::format("{} hosts", layout_.hosts().size()); });
  }
  run_inter(call, &Backend::barrier);
}

HierarchicalBackend::Ranges HierarchicalBackend::equal_parts(std::size_t count) const {
  Ranges ranges(ranks());
  for (std::size_t r = 0; r < ranks(); ++r) ranges[r] = {r * count, count};
  return ranges;
}

HierarchicalBackend::Ranges HierarchicalBackend::even_split(Call const& call) const {
  Ranges ranges;
  auto const unit = unit_of(call);
  auto const elements = unit / size_of(call.contract.dtype);
  for (std::size_t r = 0; r < ranks(); ++r) {
    auto const part = part_of(call.bytes() / unit, r, ranks(), unit);
    ranges.push_back({part.first * elements, part.count * elements});
  }
  return ranges;
}

HierarchicalBackend::Ranges HierarchicalBackend::parts_of(Call const& call, Parts const& parts) const {
  auto const element = size_of(call.contract.dtype);
  Ranges ranges;
  for (int r = 0; r < layout_.size(); ++r) {
    auto const part = call.part(parts, r);
    ranges.push_back({part.offset / element, part.length / element});
  }
  return ranges;
}

HierarchicalBackend::Ranges HierarchicalBackend::block_of(Ranges const& parts, std::size_t k, std::size_t block) {
  Ranges blocks;
  for (auto const& part : parts) {
    auto const first = std::min(k * block, part.count);
    blocks.push_back({part.first + first, std::min(block, part.count - first)});
  }
  return blocks;
}

void HierarchicalBackend::scan(Call const& call) {
  run_flat(call, &Backend::scan);
}

void HierarchicalBackend::merged(MergedCall const& calls) {
  if (explainer_) explainer_->note(calls, "any memory", "merged, flat", "copied to and from one plain call");
  weft::run_flat(*this, calls, rank(), static_cast<int>(ranks()), flat_,
                 [&](Call const& flat) { calls.run_plain(*this, flat); });
}

void HierarchicalBackend::barrier(Call const& call) {
  enter(call);
}

std::shared_ptr<void> HierarchicalBackend::allocate(Call const& call) {
  enter(call);
  std::shared_ptr<void> memory;
  auto const local = step_of(call, ++intra_calls_);
  std::uint8_t exhausted = 0;
  try {
    memory = intra_->allocate(local);
  } catch (Error const& error) {
    if (error.code() != ErrorCode::out_of_memory) {
      inter_->fail(error.code(), error.what());
      throw;
    }
    exhausted = 1;
  }
  std::vector<std::uint8_t> all(ranks());
  auto tell = inner(call, weft::Operation::all_gather, 1);
  tell.contract.dtype = DataType::u8;
  tell.send = &exhausted;
  tell.recv = all.data();
  run_inter(tell, &Backend::all_gather);
  auto const without = std::find(all.begin(), all.end(), 1);
  if (without == all.end()) return memory;
  throw Error(ErrorCode::out_of_memory, fmt::format("{}: rank {}'s host has no {} bytes of shared memory left; free "
                                                    "memory or ask for less",
                                                    describe(call), without - all.begin(), call.bytes()));
}

void HierarchicalBackend::fail(ErrorCode code, std::string const& reason) noexcept {
  inter_->fail(code, reason);
  intra_->fail(code, reason);
}

void HierarchicalBackend::abort(std::string const& reason) noexcept {
  fail(ErrorCode::aborted, fmt::format("aborted by rank {}: {}", rank(), reason));
}

}  // namespace weft::hierarchical
