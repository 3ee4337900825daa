#include "memory_use.hpp"

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

namespace train_gpt {
namespace {

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
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with("Pss:")) return std::stoull(line.substr(4)) * 1024;
  }
  return 0;
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
