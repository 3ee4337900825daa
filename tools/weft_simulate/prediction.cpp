#include "weft_simulate/prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>

#include "simulation/simulated_ranks.hpp"
#include "weft/error.hpp"

namespace weft::simulate_tool {
namespace {

constexpr double kLeastChunk = 1024;
constexpr double kMostChunks = 512;
constexpr double kMostSimulatedSeconds = 1e6;  ///< the simulation's clock holds nine times as much

/// Whether `bytes` of an operation are all ranks' parts.
bool has_parts(Operation operation) noexcept {
  switch (operation) {
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all: return true;
    default: return false;
  }
}

/// Bytes that one of `groups` equal groups of ranks has to send or receive, whichever is more, at least on average.
double crossing_bytes(Operation operation, double groups, double bytes) noexcept {
  switch (operation) {
    case Operation::all_reduce: return 2 * (groups - 1) / groups * bytes;
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::gather:
    case Operation::scatter: return (groups - 1) / groups * bytes;
    // Each rank of a group sends (n − m)/n of what it has, `bytes`.
    case Operation::all_to_all: return (groups - 1) / groups * bytes;
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::scan: return bytes;
    default: return 0;
  }
}

/// The parameters for the formula, from the slowest links: those between hosts if there are several hosts.
p2p::CostQuestion question_of(Settings const& settings, std::size_t bytes) {
  auto const& topology = settings.topology;
  auto const one_host = topology.ranks == topology.ranks_per_host;
  auto const& link = one_host ? topology.inside : topology.between;
  p2p::CostQuestion question;
  question.alpha_s = link.latency_s + link.gap_s;
  question.beta_s_per_byte = 1 / link.bytes_per_s;
  question.gamma_s_per_byte = settings.reduction_bytes_per_s > 0 ? 1 / settings.reduction_bytes_per_s : 0;
  question.ranks = topology.ranks;
  question.bytes =
      static_cast<double>(has_parts(settings.operation) ? bytes / static_cast<std::size_t>(topology.ranks) : bytes);
  return question;
}

/// The chunk for which the formula says least, each chunk's gap counted as bytes.
std::size_t best_chunk(Settings const& settings, p2p::Algorithm const& algorithm, std::size_t bytes) {
  auto question = question_of(settings, bytes);
  auto const beta = question.beta_s_per_byte;
  auto best = std::numeric_limits<double>::infinity();
  double chosen = kLeastChunk;
  for (auto chunk = kLeastChunk; chunk <= std::fmax(kLeastChunk, question.bytes); chunk *= 2) {
    if (chunk * kMostChunks < question.bytes) continue;
    question.chunk_bytes = chunk;
    question.beta_s_per_byte = beta + settings.topology.between.gap_s / chunk;
    auto const cost = algorithm.cost_s(question);
    if (cost < best) best = cost, chosen = chunk;
  }
  return static_cast<std::size_t>(chosen);
}

Call call_of(Settings const& settings, std::size_t bytes, std::byte* memory) {
  Call call;
  call.contract.operation = settings.operation;
  call.contract.dtype = DataType::u8;
  call.contract.count =
      has_parts(settings.operation) ? bytes / static_cast<std::size_t>(settings.topology.ranks) : bytes;
  call.send = call.recv = memory;
  return call;
}

std::string message_of(std::exception_ptr const& error) {
  try {
    std::rethrow_exception(error);
  } catch (std::exception const& found) {
    return found.what();
  }
}

void take(Point& point, Settings const& settings, sim::Outcome const& outcome) {
  if (settings.losses.empty()) outcome.rethrow();
  for (auto const& error : outcome.errors) {
    if (!error) continue;
    if (point.failed_ranks++ == 0) point.error = message_of(error);
  }
  point.seconds = sim::to_seconds(outcome.elapsed);
  point.messages = outcome.messages;
  point.bytes = outcome.bytes;
}

void refuse_to_overflow(std::size_t bytes, double seconds) {
  if (seconds <= kMostSimulatedSeconds) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} bytes would take {:.3g} s, more than the {:.0e} s that can be simulated; bandwidths are "
                          "in bytes per second (25e9)",
                          bytes, seconds, kMostSimulatedSeconds));
}

void refuse_short_chunks(std::size_t bytes, std::size_t chunk) {
  constexpr std::size_t kMost = std::size_t{1} << 16;
  if (bytes / chunk <= kMost) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("--chunk: {} bytes in chunks of {} are more than {} messages of every rank; choose longer ones",
                  bytes, chunk, kMost));
}

sim::Options options_of(Settings const& settings, std::shared_ptr<sim::StackPool> const& stacks) {
  sim::Options options;
  options.carries_data = false;
  options.seed = settings.seed;
  options.jitter = sim::from_seconds(settings.jitter_s);
  options.stragglers = settings.stragglers;
  options.losses = settings.losses;
  options.detection = sim::from_seconds(settings.detection_s);
  options.stacks = stacks;
  if (settings.reduction_bytes_per_s > 0) options.reduction_s_per_byte = 1 / settings.reduction_bytes_per_s;
  return options;
}

Point simulate(Settings const& settings, p2p::Algorithm const& algorithm, std::size_t bytes,
               sim::Options const& options) {
  Point point;
  point.chunk = settings.chunk.value_or(best_chunk(settings, algorithm, bytes));
  refuse_short_chunks(bytes, point.chunk);
  auto question = question_of(settings, bytes);
  question.chunk_bytes = static_cast<double>(point.chunk);
  point.formula_s = algorithm.cost_s(question);
  refuse_to_overflow(bytes, point.formula_s);
  take(point, settings, sim::simulate(settings.topology, options, [&](Transport& rank) {
         p2p::run(algorithm, rank, call_of(settings, bytes, rank.phantom()), {.chunk_bytes = point.chunk});
       }));
  return point;
}

/// What every back end has a function for.
void run(Backend& backend, Call const& call) {
  switch (call.contract.operation) {
    case Operation::all_reduce: return backend.all_reduce(call);
    case Operation::reduce_scatter: return backend.reduce_scatter(call);
    case Operation::all_gather: return backend.all_gather(call);
    case Operation::broadcast: return backend.broadcast(call);
    case Operation::reduce: return backend.reduce(call);
    case Operation::gather: return backend.gather(call);
    case Operation::scatter: return backend.scatter(call);
    case Operation::all_to_all: return backend.all_to_all(call);
    case Operation::scan: return backend.scan(call);
    default: return backend.barrier(call);
  }
}

Point simulate_by_hosts(Settings const& settings, std::size_t bytes, sim::Options const& options) {
  Point point;
  take(point, settings,
       sim::simulate_by_hosts(settings.topology, options, WireFormat::f32, [&](Backend& hosts, Transport& rank) {
         run(hosts, call_of(settings, bytes, rank.phantom()));
       }));
  return point;
}

std::size_t best_of(std::vector<Point> const& points) {
  std::size_t best = points.size();
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].failed_ranks > 0) continue;
    if (best == points.size() || points[i].seconds < points[best].seconds) best = i;
  }
  return best;
}

}  // namespace

double bound_s(sim::Topology const& topology, Operation operation, double bytes) {
  double bound = 0;
  for (auto const& level : sim::Network(topology).levels()) {
    auto const each = operation == Operation::all_to_all ? bytes * topology.ranks / level.groups : bytes;
    bound = std::fmax(bound, level.latency_s + crossing_bytes(operation, level.groups, each) / level.bytes_per_s);
  }
  return bound;
}

std::vector<Row> predict(Settings const& settings, std::function<void(Row const&)> const& tell) {
  auto const stacks = std::make_shared<sim::StackPool>();
  std::vector<Row> rows;
  for (auto const bytes : settings.sizes) {
    Row row;
    auto const ranks = static_cast<std::size_t>(settings.topology.ranks);
    // Parts are whole bytes.
    row.bytes = has_parts(settings.operation) ? std::max(bytes / ranks, std::size_t{1}) * ranks : bytes;
    row.bound_s = bound_s(settings.topology, settings.operation, static_cast<double>(row.bytes));
    refuse_to_overflow(row.bytes, row.bound_s);
    auto const options = options_of(settings, stacks);
    for (auto const& [algorithm] : settings.candidates) {
      row.points.push_back(algorithm == nullptr ? simulate_by_hosts(settings, row.bytes, options)
                                                : simulate(settings, *algorithm, row.bytes, options));
    }
    row.best = best_of(row.points);
    tell(row);
    rows.push_back(row);
  }
  return rows;
}

std::vector<Crossover> crossovers(std::vector<Row> const& rows) {
  auto sorted = rows;
  std::sort(sorted.begin(), sorted.end(), [](auto const& a, auto const& b) { return a.bytes < b.bytes; });
  std::vector<Crossover> found;
  for (auto const& row : sorted) {
    if (row.best >= row.points.size()) continue;
    if (found.empty() || found.back().candidate != row.best) found.push_back({row.bytes, row.best});
  }
  return found;
}

}  // namespace weft::simulate_tool
