#include "memory_use.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>

namespace train_gpt {
namespace {

std::optional<std::size_t> kilobytes_in(char const* path, std::string const& label) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(label)) return std::stoull(line.substr(label.size()));
  }
  return std::nullopt;
}

std::vector<std::uint64_t> figures_of(weft::MemoryAccount const& account) {
  std::vector<std::uint64_t> figures;
  for (std::size_t kind = 0; kind < weft::kMemoryKinds; ++kind) {
    weft::MemoryUsage const usage = account.usage(static_cast<weft::MemoryKind>(kind));
    figures.insert(figures.end(), {usage.live, usage.peak});
  }
  figures.insert(figures.end(), {account.total().live, account.total().peak, proportional_set_size()});
  return figures;
}

}  // namespace

std::size_t proportional_set_size() {
  return kilobytes_in("/proc/self/smaps_rollup", "Pss:").value_or(0) * 1024;
}

std::size_t available_memory() {
  auto const kilobytes = kilobytes_in("/proc/meminfo", "MemAvailable:");
  std::size_t const available = kilobytes ? *kilobytes * 1024 : weft::MemoryAccount::kUnlimited;
  std::size_t limit = 0;  // of a container; no number where there is none
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit;
  return limit == 0 ? available : std::min(available, limit);
}

nlohmann::json memory_of_ranks(weft::Communicator& world, weft::MemoryAccount const& account) {
  std::vector<std::uint64_t> const mine = figures_of(account);
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<std::uint64_t const>(mine), std::span<std::uint64_t>(all));
  nlohmann::json ranks = nlohmann::json::array();
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(world.size()); ++rank) {
    auto const* const figure = all.data() + rank * mine.size();
    nlohmann::json one;
    for (std::size_t kind = 0; kind < weft::kMemoryKinds; ++kind) {
      std::string const name(to_string(static_cast<weft::MemoryKind>(kind)));
      one[name] = {{"live", figure[2 * kind]}, {"peak", figure[2 * kind + 1]}};
    }
    one["all"] = {{"live", figure[2 * weft::kMemoryKinds]}, {"peak", figure[2 * weft::kMemoryKinds + 1]}};
    one["proportional_set_size"] = figure[2 * weft::kMemoryKinds + 2];
    ranks.push_back(std::move(one));
  }
  return ranks;
}

}  // namespace train_gpt
