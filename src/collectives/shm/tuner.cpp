#include "collectives/shm/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "collectives/shm/feeds.hpp"
#include "collectives/shm/staging_ring.hpp"

namespace weft::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCallsPerRound = 4;
constexpr int kMostRounds = 6;
/// Limits above it would take all the time there is; they stay where they were derived.
constexpr std::size_t kMostMeasured = std::size_t{1} << 20;
/// Nanoseconds of a synchronisation, a hundred times what ranks on cores of their own need: somebody else runs there,
/// and what was measured says more of them than of the machine.
constexpr double kBusy = 20'000;

/// Of choose_polling(), either way in turn: a thousand calls of the smallest kind together.
constexpr int kPollingTurns = 5;
constexpr int kPollingCalls = 100;

constexpr auto kUnknown = std::numeric_limits<double>::max();

/// One algorithm at one size, and its best times so far.
struct Experiment {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::staged;
  std::size_t bytes = 0;
  double call_ns = kUnknown;
  double loop_ns = kUnknown;
  double idle_ns = kUnknown;  ///< the loop without the call
};

/// Every rank's limits between neighbouring choices, from below and above.
std::vector<Experiment> plan(Selector const& derived, Tuning const& tuning) {
  std::vector<Experiment> experiments;
  for (auto const collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                Collective::broadcast, Collective::pull}) {
    auto const& rules = derived.rules(collective);
    for (std::size_t index = 0; index < rules.small.size() && rules.small[index].up_to > 0; ++index) {
      auto const& choice = rules.small[index];
      if (choice.up_to > kMostMeasured) break;
      auto const last = index + 1 == rules.small.size() || rules.small[index + 1].up_to == 0;
      auto const next = last ? rules.symmetric.front().algorithm : rules.small[index + 1].algorithm;
      auto const half = std::max<std::size_t>(4096, choice.up_to / 2 / 4096 * 4096);
      for (auto const bytes : {half, 4 * half}) {
        experiments.push_back({.collective = collective, .algorithm = choice.algorithm, .bytes = bytes});
        experiments.push_back({.collective = collective, .algorithm = next, .bytes = bytes});
        if (collective == Collective::broadcast && tuning.group_ranks > 0)
          experiments.push_back({.collective = collective, .algorithm = Algorithm::two_level, .bytes = bytes});
      }
    }
  }
  return experiments;
}

/// `algorithm` for every call.
Selector only(Experiment const& one, Selector const& derived, std::size_t largest_block) {
  auto selector = derived;
  auto& rules = selector.rules(one.collective);
  if (one.algorithm == Algorithm::direct) {
    rules.small = {};
    return selector;
  }
  auto const like = one.algorithm == Algorithm::two_level ? Algorithm::fed : one.algorithm;
  auto choice =
      *std::find_if(rules.small.begin(), rules.small.end(), [&](Choice const& each) { return each.algorithm == like; });
  choice.algorithm = one.algorithm;
  if (choice.chunk_bytes == choice.up_to && choice.algorithm != Algorithm::swapped)
    choice.chunk_bytes = std::min(one.bytes, largest_block);
  choice.up_to = Choice::kUnlimited;
  rules.small = {choice};
  return selector;
}

/// Runs experiments on symmetric memory of its own.
class Laboratory {
 public:
  Laboratory(ShmBackend& backend, std::size_t most_bytes, std::chrono::milliseconds timeout)
      : backend_(backend), timeout_(timeout), send_(allocate(most_bytes)), recv_(allocate(most_bytes)) {}

  /// Whether all go on: rank 0 decides.
  bool agree(bool go_on) {
    std::uint8_t answer = go_on ? 1 : 0;
    auto call = next(Operation::broadcast, 1, DataType::u8);
    call.send = call.recv = &answer;
    backend_.broadcast(call);
    return answer == 1;
  }

  void meet() { backend_.barrier(next(Operation::barrier, 0, DataType::u8)); }

  /// Nanoseconds of one write, call and read; without the call when `idle`.
  double time_loop(Experiment const& one, bool idle) {
    meet();
    auto const start = Clock::now();
    for (int i = 0; i < kCallsPerRound; ++i) {
      std::memset(send_.get(), i + 1, one.bytes);
      if (!idle) run(one);
      read(result_of(one), one.bytes);
    }
    meet();  // a broadcast's root is done before the others
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kCallsPerRound;
  }

  /// Nanoseconds of the call alone, until all are done.
  double time_call(Experiment const& one) {
    Clock::duration spent{};
    for (int i = 0; i < kCallsPerRound; ++i) {
      std::memset(send_.get(), i + 1, one.bytes);
      meet();
      auto const start = Clock::now();
      run(one);
      meet();
      spent += Clock::now() - start;
      read(result_of(one), one.bytes);
    }
    return std::chrono::duration<double, std::nano>(spent).count() / kCallsPerRound;
  }

  double time_synchronisation() {
    constexpr int kMeetings = 100;
    meet();
    auto const start = Clock::now();
    for (int i = 0; i < kMeetings; ++i) meet();
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kMeetings;
  }

  /// Nanoseconds of the smallest call with data, which takes a line from each rank to each other.
  double time_line() {
    auto const call = [&] {
      auto one = next(Operation::all_reduce, 2, DataType::f32);
      one.send = one.recv = send_.get();
      backend_.all_reduce(one);
    };
    std::memset(send_.get(), 0, kLine);
    meet();
    auto const start = Clock::now();
    for (int i = 0; i < kPollingCalls; ++i) call();
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kPollingCalls;
  }

 private:
  Call next(Operation operation, std::size_t count, DataType dtype) {
    Call call;
    call.contract = {.count = count, .operation = operation, .dtype = dtype};
    call.sequence = ++calls_;
    call.timeout = timeout_;
    return call;
  }

  std::shared_ptr<void> allocate(std::size_t bytes) {
    auto memory = backend_.allocate(next(Operation::allocate, bytes, DataType::u8));
    std::memset(memory.get(), 0, bytes);
    return memory;
  }

  /// All but the two that need not work in place; shards, where there are any, are their ranks' parts of a buffer.
  [[nodiscard]] void* result_of(Experiment const& one) const {
    return one.collective == Collective::pull || one.collective == Collective::reduce_scatter ? recv_.get()
                                                                                              : send_.get();
  }

  void run(Experiment const& one) {
    auto const ranks = static_cast<std::size_t>(backend_.size());
    auto const part = one.bytes / ranks / kLine * kLine;
    auto const elements = one.bytes / sizeof(float);
    auto const part_elements = part / sizeof(float);
    auto call = next(Operation::all_reduce, elements, DataType::f32);
    call.send = send_.get();
    call.recv = result_of(one);
    switch (one.collective) {
      case Collective::reduce_scatter:
        call.contract.operation = Operation::reduce_scatter;
        call.contract.count = part_elements;
        return backend_.reduce_scatter(call);
      case Collective::all_gather:
        call.contract.operation = Operation::all_gather;
        call.contract.count = part_elements;
        call.send = at(send_.get(), static_cast<std::size_t>(backend_.rank()) * part);
        return backend_.all_gather(call);
      case Collective::broadcast: call.contract.operation = Operation::broadcast; return backend_.broadcast(call);
      case Collective::pull:
        call.contract.operation = Operation::all_to_all;
        call.contract.count = part_elements;
        return backend_.all_to_all(call);
      default: return backend_.all_reduce(call);
    }
  }

  void read(void const* data, std::size_t bytes) noexcept {
    auto const* const words = static_cast<std::uint64_t const*>(data);
    for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) sum_ += words[i];
    asm volatile("" : : "r"(sum_));  // it is read, whoever wants to know the sum
  }

  ShmBackend& backend_;
  std::chrono::milliseconds timeout_;
  std::uint64_t calls_ = 0;
  std::uint64_t sum_ = 0;
  std::shared_ptr<void> send_;
  std::shared_ptr<void> recv_;
};

/// Whether two ranks come together faster without a fence, by kLeastGain; rank 0's clock counts.
bool choose_polling(ShmBackend& scratch, Laboratory& laboratory) {
  double fenced = kUnknown;
  double at_once = kUnknown;
  for (int turn = 0; turn < kPollingTurns; ++turn) {
    scratch.poll_at_once(false);
    fenced = std::min(fenced, laboratory.time_line());
    scratch.poll_at_once(true);
    at_once = std::min(at_once, laboratory.time_line());
  }
  auto const chosen = laboratory.agree(at_once < (1 - kLeastGain) * fenced);
  scratch.poll_at_once(chosen);
  return chosen;
}

}  // namespace

std::string describe_machine(Topology const& topology, Tuning const& tuning, int ranks, std::vector<int> const& cpus) {
  return fmt::format("{} ranks on cpus {} of {}, L2 {}K, L3 {}K, staging {}K, feeds {}K, groups of {}", ranks,
                     format_ranges(cpus), processor_name(), topology.l2_bytes >> 10U, topology.l3_bytes >> 10U,
                     tuning.ring_bytes >> 10U, (Feeds::kSlots * Feeds::kSlotBytes) >> 10U, tuning.group_ranks);
}

CostModel measure(ShmBackend& scratch, Selector const& derived, Tuning const& tuning,
                  std::chrono::milliseconds timeout) {
  auto const start = Clock::now();
  auto experiments = plan(derived, tuning);
  auto const largest_block = StagingRing(nullptr, tuning.ring_bytes).max_block();
  std::size_t most_bytes = 0;
  for (auto const& one : experiments) most_bytes = std::max(most_bytes, one.bytes);
  Laboratory laboratory(scratch, most_bytes, timeout);

  // Ranks that sleep soon fence in any case.
  auto const polls_long = tuning.inline_patience.spins + tuning.inline_patience.glances > kFewSpins;
  auto const polls_at_once = scratch.size() == 2 && polls_long && choose_polling(scratch, laboratory);
  for (std::size_t turn = 0; turn < kMostRounds * experiments.size(); ++turn) {
    if (!laboratory.agree(Clock::now() - start < kMeasuringTime)) break;
    auto& one = experiments[turn % experiments.size()];
    scratch.use(only(one, derived, largest_block));
    one.loop_ns = std::min(one.loop_ns, laboratory.time_loop(one, false));
    one.idle_ns = std::min(one.idle_ns, laboratory.time_loop(one, true));
    one.call_ns = std::min(one.call_ns, laboratory.time_call(one));
  }
  auto const synchronisation = laboratory.time_synchronisation();

  CostModel model;
  if (synchronisation > kBusy) return model;
  if (std::any_of(experiments.begin(), experiments.end(), [](auto const& one) { return one.loop_ns == kUnknown; }))
    return model;
  model.synchronisation_ns = synchronisation;
  model.polls_at_once = polls_at_once;
  std::map<std::pair<Collective, Algorithm>, std::pair<std::vector<Sample>, std::vector<Sample>>> samples;
  for (auto const& one : experiments) {
    auto& [calls, loops] = samples[{one.collective, one.algorithm}];
    calls.push_back({one.bytes, one.call_ns});
    // A call costs no less than coming together, however the noise of the difference falls.
    loops.push_back({one.bytes, std::max(one.loop_ns - one.idle_ns, synchronisation)});
  }
  for (auto const& [which, of_it] : samples)
    model.of(which.first, which.second) = {fit(of_it.first), fit(of_it.second)};
  return model;
}

}  // namespace weft::shm
