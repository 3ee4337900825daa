#pragma once

#include <string>
#include <vector>

#include "weft/communicator.hpp"
#include "weft/overlap.hpp"

namespace weft {

/// Collects a rank's named intervals and writes all ranks' as one Chrome/Perfetto JSON file (chrome://tracing, ui.perfetto.dev):
/// one process per rank, one thread per lane. Not thread-safe. add() allocates only as the vector grows.
class Trace {
 public:
  enum class Lane { compute, communication };

  void add(Lane lane, std::string name, Interval interval, std::size_t bytes = 0);
  [[nodiscard]] bool empty() const noexcept { return spans_.empty(); }

  /// Collective: gathers every rank's intervals, rank 0 writes `path`. @throws Error{system} when it cannot be written (on rank 0).
  void write(Communicator& communicator, std::string const& path) const;

 private:
  struct Span {
    Lane lane;
    std::string name;
    Interval interval;
    std::size_t bytes;
  };
  std::vector<Span> spans_;
};

}  // namespace weft
