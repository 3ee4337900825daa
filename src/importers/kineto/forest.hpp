#pragma once

#include <cstddef>
#include <vector>

#include "importers/kineto/events.hpp"

namespace weft::kineto {

inline constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

/// Which event lies within which, on each lane.
class Forest {
 public:
  explicit Forest(Events const& all);

  /// The smallest event that encloses an event; kNothing where there is none.
  [[nodiscard]] std::size_t parent(std::size_t event) const { return parents_[event]; }
  /// The event's own time: microseconds in which none of the events within it ran.
  [[nodiscard]] double own_time(std::size_t event) const { return own_[event]; }
  /// The smallest event that a lane has at a time.
  [[nodiscard]] std::size_t at(std::size_t lane, double time) const;

 private:
  Events const& all_;
  std::vector<std::size_t> parents_;
  std::vector<double> own_;
  std::vector<std::vector<std::size_t>> of_lane_;  ///< by start
};

}  // namespace weft::kineto
