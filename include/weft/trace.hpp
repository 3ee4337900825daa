#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/overlap.hpp"

namespace weft {

/// Collects a rank's named intervals and writes those of all ranks as one Chrome/Perfetto JSON file (chrome://tracing,
/// ui.perfetto.dev): one process per rank, one thread per lane. Not thread-safe. add() allocates only as the vector and
/// the name grow.
///
/// The file is `{"displayTimeUnit": "ms", "traceEvents": […]}`. Every interval is a complete event:
/// `{"ph": "X", "name", "cat": "compute" | "communication", "pid": rank, "tid": 0 (compute) | 1 (communication),
/// "ts", "dur": microseconds since the earliest start of all ranks, "args": {"bytes": …}}` (args only where bytes were
/// given). Metadata events name processes `rank R` and threads by their lane. Ranks share one clock (one host), so with
/// C and M the unions of a rank's compute and communication events, hidden time is |C ∩ M| and exposed time |M| − |C ∩
/// M|, as in OverlapReport.
class Trace {
 public:
  enum class Lane { compute, communication };

  struct Span {
    Lane lane = Lane::compute;
    std::string name;
    Interval interval;
    std::size_t bytes = 0;
  };

  void add(Lane lane, std::string name, Interval interval, std::size_t bytes = 0);
  [[nodiscard]] bool empty() const noexcept { return spans_.empty(); }
  [[nodiscard]] std::vector<Span> const& spans() const noexcept { return spans_; }

  /// Collective: gathers every rank's intervals, rank 0 writes `path`. @throws Error{system} when it cannot be written
  /// (on rank 0).
  void write(Communicator& communicator, std::string const& path) const;

 private:
  std::vector<Span> spans_;
};

}  // namespace weft
