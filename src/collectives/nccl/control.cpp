#include "collectives/nccl/control.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "core/host_identity.hpp"

namespace weft::nccl {
namespace {

void require_one_host(Bootstrap& bootstrap, Config const& config) {
  std::array<char, kMostHostIdCharacters + 1> mine{};
  host_identity(config).copy(mine.data(), kMostHostIdCharacters);
  auto const all = bootstrap.all_gather(std::as_bytes(std::span(mine)));
  for (int rank = 1; rank < bootstrap.size(); ++rank) {
    if (std::memcmp(all.data(), all.data() + static_cast<std::size_t>(rank) * mine.size(), mine.size()) == 0) continue;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("ranks 0 and {} are on different hosts: device memory moves within one host only so far", rank));
  }
}

}  // namespace

std::unique_ptr<Control> Control::create(Bootstrap& bootstrap, Config const& config) {
  require_one_host(bootstrap, config);
  auto const lines = sizeof(ControlLines);
  auto const bytes = kHeader + static_cast<std::size_t>(bootstrap.size()) * lines + Ledger::bytes(bootstrap.size());
  auto mapping = shm::create_segment(bootstrap.rank(), bootstrap.size(), bytes, lines,
                                     [&](std::span<std::byte const> mine) { return bootstrap.all_gather(mine); });
  return std::make_unique<Control>(std::move(mapping), bootstrap.rank(), bootstrap.size());
}

std::optional<Contract> Control::recall(int rank, std::uint64_t sequence) const noexcept {
  auto const& entry = lines_of(rank).entries[sequence % ControlLines::kRemembered];
  if (entry.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  PackedContract const packed(entry.count.load(std::memory_order_acquire), entry.rest.load(std::memory_order_acquire));
  if (entry.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  return packed.unpack();
}

}  // namespace weft::nccl
