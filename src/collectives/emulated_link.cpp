#include "collectives/emulated_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>

#include "weft/error.hpp"

namespace weft {
namespace {

/// "2GB/s" → 2e9; 0 when malformed. Locale-independent.
double parse_bandwidth(std::string_view text) {
  double value = 0;
  auto const [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return 0;
  std::string_view const unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (unit == "KB/s") return value * 1e3;
  if (unit == "MB/s") return value * 1e6;
  if (unit == "GB/s") return value * 1e9;
  return unit == "B/s" ? value : 0;
}

}  // namespace

EmulatedLink EmulatedLink::parse(std::string const& text) {
  auto const colon = text.find(':');
  auto const latency = colon == std::string::npos ? std::nullopt : parse_duration(text.substr(0, colon));
  auto const bandwidth = colon == std::string::npos ? 0 : parse_bandwidth(std::string_view(text).substr(colon + 1));
  if (!latency || !std::isfinite(bandwidth) || bandwidth <= 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("link \"{}\" is not LATENCY:BANDWIDTH, e.g. 20us:2GB/s (ns us ms s; B/s KB/s MB/s GB/s, above 0)",
                    text));
  }
  return {*latency, bandwidth};
}

void check(EmulatedLink const& link) {
  if (link.latency.count() >= 0 && std::isfinite(link.bytes_per_second) && link.bytes_per_second > 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("emulated link of latency {} ns and {} B/s: latency must not be negative, bandwidth must be "
                          "above 0",
                          link.latency.count(), link.bytes_per_second));
}

std::string EmulatedLink::describe() const {
  auto const microseconds = std::chrono::duration<double, std::micro>(latency).count();
  auto const [value, unit] = bytes_per_second >= 1e9   ? std::pair{bytes_per_second / 1e9, "GB/s"}
                             : bytes_per_second >= 1e6 ? std::pair{bytes_per_second / 1e6, "MB/s"}
                                                       : std::pair{bytes_per_second / 1e3, "KB/s"};
  return fmt::format("{:.4g}us:{:.4g}{} (emulated)", microseconds, value, unit);
}

namespace {

/// Bytes of all parts but `rank`'s own, which crosses no link; 0 without parts.
double others_bytes(Call const& call, Parts const& parts, int rank) {
  auto const elements = std::accumulate(parts.counts.begin(), parts.counts.end(), std::size_t{0});
  auto const own = parts.counts.empty() ? 0 : parts.counts[static_cast<std::size_t>(rank)];
  return static_cast<double>((elements - own) * size_of(call.contract.dtype));
}

/// Bytes of a call with unequal parts, as far as this rank knows them: the contract in weft/communicator.hpp.
double exchanged_bytes(Call const& call, int rank, int ranks) {
  if (call.send_parts.counts.empty() && call.recv_parts.counts.empty()) {
    return static_cast<double>(ranks - 1) * static_cast<double>(call.own_bytes);
  }
  return std::max(others_bytes(call, call.send_parts, rank), others_bytes(call, call.recv_parts, rank));
}

}  // namespace

std::chrono::nanoseconds link_time(EmulatedLink const& link, Call const& call, int rank, int ranks) {
  auto const n = static_cast<double>(ranks);
  auto const shard =
      static_cast<double>(call.bytes());  // all_gather and reduce_scatter count a shard, the formula n of them
  auto const full_time = shard / link.bytes_per_second;
  auto const steps = n - 1;
  double latencies = 0;
  double transfer = 0;
  switch (call.contract.operation) {
    case Operation::all_reduce: latencies = 2 * steps, transfer = 2 * steps / n * full_time; break;
    case Operation::reduce_scatter:
    case Operation::all_gather: latencies = steps, transfer = steps * full_time; break;
    case Operation::reduce:
    case Operation::scan:
    case Operation::exscan:
    case Operation::broadcast: latencies = steps, transfer = ranks > 1 ? full_time : 0; break;
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all: latencies = steps, transfer = steps * full_time; break;
    case Operation::send:
    case Operation::receive:
    case Operation::send_receive: latencies = 1, transfer = full_time; break;
    case Operation::reduce_scatter_v:
    case Operation::all_gather_v: latencies = steps, transfer = steps / n * full_time; break;
    case Operation::gather_v:
    case Operation::scatter_v:
    case Operation::all_to_all_v:
      latencies = steps, transfer = exchanged_bytes(call, rank, ranks) / link.bytes_per_second;
      break;
    case Operation::barrier: latencies = 2 * std::bit_width(static_cast<unsigned>(ranks - 1)); break;
    case Operation::allocate: break;  // sets memory up; nothing crosses a link
  }
  auto const latency = std::chrono::duration<double>(link.latency) * latencies;
  constexpr std::chrono::hours kForever{24 * 365};  // beyond any timeout, and what a clock can hold
  auto const took =
      std::min<std::chrono::duration<double>>(latency + std::chrono::duration<double>(transfer), kForever);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(took);
}

}  // namespace weft
