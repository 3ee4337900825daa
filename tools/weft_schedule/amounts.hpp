#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::schedule_tool {

/// An amount of memory: "80G" (10^9 bytes; K, M, T likewise), "70Gi" (2^30), "123" (bytes), or "1.3x". The last is
/// relative to the transient bytes, without resident ones, of the order that takes the least memory.
struct MemoryAmount {
  std::int64_t bytes = 0;
  double times = 0;  ///< above 0 if the amount is relative
  [[nodiscard]] bool is_relative() const { return times > 0; }
  /// The amount in bytes, including resident ones. `serial_peak` includes them as well.
  [[nodiscard]] std::int64_t resolved(std::int64_t serial_peak, std::int64_t resident) const;
};
/// @throws Error{invalid_argument} for other texts, for negative amounts and those beyond 64 bits, and for a number
/// below 1024 without a unit, whose unit was probably forgotten ("100B" is 100 bytes).
[[nodiscard]] MemoryAmount parse_memory(std::string const& text);

/// "80.0 GB", where 1 GB is 10^9 bytes.
[[nodiscard]] std::string in_gigabytes(std::int64_t bytes);

/// One of --what-if's changes: "link=2x" or "link=45e9".
struct Change {
  std::string key{};
  std::string text{};  ///< as given
  double value = 0;    ///< the number in "45e9" or "2x"
  bool is_factor = false;
  [[nodiscard]] double applied_to(double old) const { return is_factor ? old * value : value; }
};
inline constexpr std::string_view kChangeKeys =
    "link, within, latency, flops, bandwidth, memory, ranks, ranks_per_host, contention";

/// Reads "link=2x,ranks=256". @throws Error{invalid_argument} naming the bad part: an unknown or repeated key, or a
/// value that is not a number.
[[nodiscard]] std::vector<Change> parse_changes(std::string const& text);

}  // namespace weft::schedule_tool
