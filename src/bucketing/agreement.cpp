#include "bucketing/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "weft/error.hpp"

namespace weft {
namespace {

// What each rank tells the others about itself, in this order.
enum Field : std::size_t {
  kTensors,
  kFirstBytes,
  kBytes,
  kLastBytes,
  kOp,
  kRebuild,
  kCollective,
  kComeAndGo,
  kPolicy,
  kGivenCost,
  kUnused,
  kHook,
  kDigest,
  kFields,
  kOverlap = kFields,  // not an option that ranks must agree on, but a setting
  kNamedFields
};
using Summary = std::array<std::uint64_t, kFields>;

constexpr std::size_t kWordsPerSpec = 2;  // count, dtype

std::vector<std::uint64_t> words_of(std::span<TensorSpec const> specs, std::size_t room) {
  std::vector<std::uint64_t> words(room * kWordsPerSpec, 0);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    words[i * kWordsPerSpec] = specs[i].count;
    words[i * kWordsPerSpec + 1] = static_cast<std::uint64_t>(specs[i].dtype);
  }
  return words;
}

// FNV-1a over whole words.
std::uint64_t digest_of(std::span<std::uint64_t const> words) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (std::uint64_t const word : words) {
    for (int shift = 0; shift < 64; shift += 8) digest = (digest ^ ((word >> shift) & 0xffU)) * 0x100000001b3U;
  }
  return digest;
}

std::vector<std::uint64_t> gather(Communicator& communicator, std::span<std::uint64_t const> mine) {
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(ConstBufferView(mine), BufferView(std::span(all))).wait();
  return all;
}

std::string name_of(std::uint64_t count, std::uint64_t dtype) {
  return fmt::format("{} x {}", count, to_string(static_cast<DataType>(dtype)));
}

// The first difference between two ranks' specs; both lists are padded to equal length.
std::string spec_difference(Summary const& reference, Summary const& other, std::span<std::uint64_t const> expected,
                            std::span<std::uint64_t const> actual) {
  std::size_t const common = std::min(reference[kTensors], other[kTensors]);
  for (std::size_t i = 0; i < common; ++i) {
    auto const a = expected.subspan(i * kWordsPerSpec, kWordsPerSpec);
    auto const b = actual.subspan(i * kWordsPerSpec, kWordsPerSpec);
    if (!std::equal(a.begin(), a.end(), b.begin())) {
      return fmt::format("parameter {} is {} there but {} on rank 0", i, name_of(b[0], b[1]), name_of(a[0], a[1]));
    }
  }
  return fmt::format("it has {} parameters but rank 0 has {} (the first {} are equal)", other[kTensors],
                     reference[kTensors], common);
}

// The options' names as in code; empty for what is no option.
constexpr std::array<char const*, kNamedFields> kNames{"",
                                                       "limits.first_bytes",
                                                       "limits.bytes",
                                                       "limits.last_bytes",
                                                       "op",
                                                       "rebuild",
                                                       "collective",
                                                       "come_and_go",
                                                       "policy",
                                                       "transfer_cost",
                                                       "unused",
                                                       "hook",
                                                       "",
                                                       "overlap"};

// An option's value as it is written in code.
std::string text_of(std::size_t field, std::uint64_t value) {
  constexpr std::array<std::string_view, 3> kCollectives{"all_reduce", "reduce_scatter", "reduce_scatter_and_release"};
  constexpr std::array<std::string_view, 2> kPolicies{"caps", "optimal"};
  constexpr std::array<std::string_view, 3> kWays{"zero", "find", "fixed"};
  switch (field) {
    case kOp: return std::string(to_string(static_cast<ReduceOp>(value)));
    case kRebuild:
    case kComeAndGo:
    case kOverlap: return value != 0 ? "true" : "false";
    case kCollective: return std::string(kCollectives[value]);
    case kPolicy: return std::string(kPolicies[value]);
    case kUnused: return std::string(kWays[value]);
    case kGivenCost:
    case kHook: return value != 0 ? "given" : "not given";
    default: return std::to_string(value);
  }
}

std::string option_difference(Summary const& reference, Summary const& other) {
  for (std::size_t field = kFirstBytes; field < kDigest; ++field) {
    if (reference[field] != other[field]) {
      return fmt::format("options.{} is {} there but {} on rank 0", kNames[field], text_of(field, other[field]),
                         text_of(field, reference[field]));
    }
  }
  return "its description of the parameters has another digest";
}

}  // namespace

void check_agreement(Communicator& communicator, std::span<TensorSpec const> specs, BucketerOptions const& options) {
  Summary const mine{specs.size(),
                     options.limits.first_bytes,
                     options.limits.bytes,
                     options.limits.last_bytes,
                     static_cast<std::uint64_t>(options.op),
                     options.rebuild ? 1U : 0U,
                     static_cast<std::uint64_t>(options.collective),
                     options.come_and_go ? 1U : 0U,
                     static_cast<std::uint64_t>(options.policy),
                     options.transfer_cost ? 1U : 0U,
                     static_cast<std::uint64_t>(options.unused),
                     options.hook ? 1U : 0U,
                     digest_of(words_of(specs, specs.size()))};
  std::vector<std::uint64_t> const gathered = gather(communicator, mine);
  std::vector<Summary> ranks(static_cast<std::size_t>(communicator.size()));
  for (std::size_t r = 0; r < ranks.size(); ++r) std::copy_n(gathered.begin() + r * kFields, kFields, ranks[r].begin());
  auto const differs = [&](Summary const& rank) { return rank != ranks.front(); };
  auto const odd = std::find_if(ranks.begin(), ranks.end(), differs);
  if (odd == ranks.end()) return;

  // Every rank comes here with the same summaries, so all take part in looking for the difference.
  std::size_t room = 0;
  for (Summary const& rank : ranks) room = std::max<std::size_t>(room, rank[kTensors]);
  std::vector<std::uint64_t> const all = gather(communicator, words_of(specs, room));
  std::size_t const rank = static_cast<std::size_t>(odd - ranks.begin());
  std::span<std::uint64_t const> const words(all);
  bool const same_specs = (*odd)[kTensors] == ranks[0][kTensors] && (*odd)[kDigest] == ranks[0][kDigest];
  std::string const difference =
      same_specs ? option_difference(ranks[0], *odd)
                 : spec_difference(ranks[0], *odd, words.first(room * kWordsPerSpec),
                                   words.subspan(rank * room * kWordsPerSpec, room * kWordsPerSpec));
  throw Error(ErrorCode::mismatch,
              fmt::format("bucketer: rank {} differs from rank 0: {}; build the same model with the "
                          "same options on every rank",
                          rank, difference));
}

void check_agreement(Communicator& communicator, BucketSettings const& settings) {
  constexpr std::size_t kSettings = 5;
  constexpr std::array<std::size_t, kSettings> kFieldOf{kFirstBytes, kBytes, kLastBytes, kPolicy, kOverlap};
  std::array<std::uint64_t, kSettings> const mine{
      settings.limits.first_bytes, settings.limits.bytes, settings.limits.last_bytes,
      static_cast<std::uint64_t>(settings.policy), settings.overlap ? 1U : 0U};
  std::vector<std::uint64_t> const all = gather(communicator, mine);
  for (std::size_t i = kSettings; i < all.size(); ++i) {
    std::size_t const which = i % kSettings;
    if (all[i] == all[which]) continue;
    std::size_t const field = kFieldOf[which];
    throw Error(ErrorCode::mismatch,
                fmt::format("bucketer: reconfigure(): settings.{} is {} on rank {} but {} on rank 0; pass the same on "
                            "every rank",
                            kNames[field], text_of(field, all[i]), i / kSettings, text_of(field, all[which])));
  }
}

void check_agreement(Communicator& communicator, JoinOptions const& options) {
  auto const text = [](std::uint64_t both) {
    return fmt::format("divisor {} and throw_on_early_termination {}",
                       both / 2 == static_cast<std::uint64_t>(JoinDivisor::all_ranks) ? "all_ranks" : "active_ranks",
                       both % 2 != 0);
  };
  std::array<std::uint64_t, 1> const mine{static_cast<std::uint64_t>(options.divisor) * 2 +
                                          (options.throw_on_early_termination ? 1 : 0)};
  std::vector<std::uint64_t> const all = gather(communicator, mine);
  auto const odd = std::find_if(all.begin(), all.end(), [&](std::uint64_t one) { return one != all.front(); });
  if (odd == all.end()) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("bucketer: begin_join(): rank {} has {}, rank 0 {}; pass the same on every rank",
                          odd - all.begin(), text(*odd), text(all.front())));
}

}  // namespace weft
