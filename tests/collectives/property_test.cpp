// Random calls of every operation against a serial computation: 10,000 of them a run, see cases/random_run.hpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "collectives/cases/attempt.hpp"
#include "collectives/cases/random_run.hpp"
#include "harness/ranks.hpp"
#include "harness/sanitizers.hpp"
#include "weft/group.hpp"

namespace weft::test {
namespace {

constexpr int kMostRanks = 9;
constexpr std::size_t kMostAtOnce = 8;
constexpr std::size_t kAreaBytes = std::size_t{1} << 20U;
constexpr std::size_t kFusedBytes = std::size_t{16} << 10U;
constexpr std::uint64_t kCases = unless_sanitized(10'000, 1000);

/// Case i is of 1 + i % 9 ranks.
RandomRun const& this_run() {
  static RandomRun const run = [] {
    RandomRun const chosen(kCases);
    fmt::print("{} random cases, WEFT_TEST_SEED={}\n", chosen.cases, chosen.seed);
    return chosen;
  }();
  return run;
}

/// How calls that are under way together are made.
enum class Manner { one_by_one, grouped, fused };

/// Communicators that differ in how calls wait, how much they stage, and whether they merge.
struct Setting {
  char const* name;
  std::optional<std::size_t> staging_bytes{};
  std::optional<std::chrono::microseconds> spin{};
  Manner manner = Manner::one_by_one;
  bool small_staging = false;
};
constexpr std::array kSettings{Setting{"as it comes"},
                               Setting{"small blocks", std::size_t{128} << 10U},
                               Setting{"sleeping", std::nullopt, std::chrono::microseconds(0)},
                               Setting{"grouped", std::nullopt, std::nullopt, Manner::grouped},
                               Setting{"fused", std::nullopt, std::nullopt, Manner::fused},
                               Setting{"small staging", std::nullopt, std::nullopt, Manner::one_by_one, true}};

/// What a rank uses from case to case.
struct Bench {
  Bench(Communicator& world, Manner how)
      : communicator(world),
        arena(world, 2 * kMostAtOnce, kAreaBytes),
        streams{Stream::cpu(), Stream::cpu()},
        manner(how) {
    if (manner == Manner::fused) communicator.fuse(streams[0], kFusedBytes);
  }

  /// Ends what is under way, which uses buffers that are about to go.
  void give_up(std::string const& why) {
    communicator.abort(why);
    for (auto& stream : streams) stream.synchronize();
  }

  Communicator& communicator;
  Arena arena;
  std::array<Stream, 2> streams;
  Manner manner;
};

/// Each rank decides by itself whether it waits for a call at once or leaves it to one of its streams. Where calls
/// merge all ranks decide alike, and what only some of them call does not come between.
CollectiveOptions choose_stream(Bench& bench, Case const& one) {
  auto const seed = one.seed >> 32U;
  if (bench.manner == Manner::fused)
    return seed % 6 == 0 ? CollectiveOptions{} : CollectiveOptions{.stream = bench.streams[0]};
  auto const choice = (seed + static_cast<std::uint64_t>(bench.communicator.rank()) * 7) % 5;
  if (choice >= bench.streams.size()) return {};
  return {.stream = bench.streams[choice]};
}

/// Cases that are all issued before the first is waited for.
void run_together(Bench& bench, RandomRun const& run, std::vector<std::uint64_t> const& numbers) {
  std::vector<std::unique_ptr<Attempt>> attempts;
  std::vector<CollectiveOptions> options;
  auto const tell = [&](std::uint64_t number, std::string const& what) {
    return fmt::format(
        "{}\nagain: WEFT_TEST_SEED={} WEFT_TEST_CASE={} property_test; with those before it: "
        "WEFT_TEST_SEED={} WEFT_TEST_CASES={} property_test --gtest_filter='*Ranks{}'",
        what, run.seed, number, run.seed, run.cases, bench.communicator.size());
  };
  auto const ranks = bench.communicator.size();
  auto const similar = bench.manner != Manner::one_by_one;  // calls can merge, then
  auto const case_of = [&](std::uint64_t number) {
    auto const first = make_case(run.seed, numbers.front(), ranks);
    auto one =
        !similar || number % 5 == 0 ? make_case(run.seed, number, ranks) : make_similar_case(run.seed, number, first);
    // A message makes fused calls go, so all ranks have to have one.
    if (bench.manner == Manner::fused && one.kind == Kind::message) one.kind = Kind::send_recv;
    return one;
  };
  auto current = numbers.front();
  try {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      current = numbers[i];
      auto const one = case_of(numbers[i]);
      attempts.push_back(std::make_unique<Attempt>(bench.communicator, one, bench.arena, 2 * i));
      options.push_back(choose_stream(bench, one));
    }
    std::optional<Group> group;
    if (bench.manner == Manner::grouped) group.emplace(bench.communicator, options.front());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      current = numbers[i], attempts[i]->issue(group ? CollectiveOptions{} : options[i]);
    if (group) group->end().wait();
    for (std::size_t i = 0; i < numbers.size(); ++i) current = numbers[i], attempts[i]->finish();
  } catch (Error const& error) {
    bench.give_up(error.what());
    auto const one = case_of(current);
    throw Error(error.code(), tell(current, fmt::format("{}: {}", one.describe(), error.what())));
  } catch (std::exception const& error) {
    bench.give_up(error.what());
    throw std::runtime_error(tell(current, error.what()));
  }
}

void run_setting(RandomRun const& run, Setting const& setting, int ranks, std::vector<std::uint64_t> const& numbers) {
  SCOPED_TRACE(setting.name);
  Config config;
  config.staging_bytes = setting.staging_bytes;
  config.spin = setting.spin;
  config.timeout = kRankLimit;
  run_thread_ranks(ranks,
                   [&](Communicator& world) {
                     Bench bench(world, setting.manner);
                     for (std::size_t next = 0; next < numbers.size();) {
                       auto const most =
                           1 + numbers[next] / kMostRanks % (setting.manner == Manner::one_by_one ? 4 : kMostAtOnce);
                       auto const count = std::min<std::size_t>(most, numbers.size() - next);
                       run_together(bench, run,
                                    {numbers.begin() + static_cast<std::ptrdiff_t>(next),
                                     numbers.begin() + static_cast<std::ptrdiff_t>(next + count)});
                       next += count;
                     }
                   },
                   {.config = config, .small_staging = setting.small_staging});
}

class Property : public testing::TestWithParam<int> {};

TEST_P(Property, EveryCallGivesTheSerialResult) {
  auto const& run = this_run();
  auto const ranks = GetParam();
  std::array<std::vector<std::uint64_t>, kSettings.size()> numbers;
  for (auto number = static_cast<std::uint64_t>(ranks - 1); number < run.cases; number += kMostRanks) {
    auto const setting = std::min<std::uint64_t>(number * kSettings.size() / run.cases, kSettings.size() - 1);
    if (!run.only || *run.only == number) numbers[setting].push_back(number);
  }
  for (std::size_t i = 0; i < kSettings.size(); ++i) {
    if (!numbers[i].empty()) run_setting(run, kSettings[i], ranks, numbers[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Property, testing::Range(1, kMostRanks + 1),
                         [](auto const& ranks) { return fmt::format("Ranks{}", ranks.param); });

}  // namespace
}  // namespace weft::test
