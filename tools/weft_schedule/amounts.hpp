#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::schedule_tool {

/// "80G" (10^9 bytes; K, M, T likewise), "70Gi" (2^30), "123" bytes; or "1.3x": so many times the transient bytes of
/// the order of least memory, resident ones aside.
struct MemoryAmount {
  std::int64_t bytes = 0;
  double times = 0;  ///< above 0 where it is relative
  [[nodiscard]] bool is_relative() const { return times > 0; }
  /// In bytes, resident ones included. `serial_peak` has them as well.
  [[nodiscard]] std::int64_t resolved(std::int64_t serial_peak, std::int64_t resident) const;
};
/// @throws Error{invalid_argument} for what is none of these, negative or beyond 64 bits, and for a number below 1024
/// without a unit ("100B" is 100 bytes): more likely its unit was forgotten.
[[nodiscard]] MemoryAmount parse_memory(std::string const& text);

/// "80.0 GB", of 10^9 bytes.
[[nodiscard]] std::string in_gigabytes(std::int64_t bytes);

/// One of --what-if's changes: "link=2x" or "link=45e9".
struct Change {
  std::string key{};
  std::string text{};  ///< as given
  double value = 0;    ///< of "45e9", "2x"
  bool is_factor = false;
  [[nodiscard]] double applied_to(double old) const { return is_factor ? old * value : value; }
};
inline constexpr std::string_view kChangeKeys =
    "link, within, latency, flops, bandwidth, memory, ranks, ranks_per_host, contention";

/// "link=2x,ranks=256". @throws Error{invalid_argument} naming the part: a key that there is not, no number, twice.
[[nodiscard]] std::vector<Change> parse_changes(std::string const& text);

}  // namespace weft::schedule_tool
