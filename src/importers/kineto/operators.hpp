#pragma once

#include <cstddef>
#include <vector>

#include "importers/kineto/events.hpp"
#include "importers/kineto/forest.hpp"

namespace weft::kineto {

struct Operator {
  std::size_t event = 0;
  double start = 0;  ///< µs
  double time = 0;   ///< µs; of an event that was taken apart: what is left of it
  bool is_collective = false;
  bool is_update = false;
  /// Of a collective: the call on a thread that started it, or the collective itself.
  std::size_t call = kNothing;
};

/// Decides which events of a trace are operators of the graph.
class Operators {
 public:
  Operators(Events const& all, Forest const& forest);

  /// By start.
  [[nodiscard]] std::vector<Operator> const& list() const { return list_; }
  /// The operator that an event is, or lies within; kNothing where there is none.
  [[nodiscard]] std::size_t of_event(std::size_t event) const { return of_event_[event]; }
  /// The device events that a call of the runtime started.
  [[nodiscard]] std::vector<std::size_t> const& launched_by(std::size_t event) const { return launched_[event]; }
  /// The call that a collective's title carries out.
  [[nodiscard]] std::size_t call_of(std::size_t title) const { return call_of_[title]; }
  /// Whether an event waits for all streams, or for one.
  [[nodiscard]] static bool waits_for_all(Event const& event);
  [[nodiscard]] static bool waits_for_one(Event const& event);
  /// What an event waited for: on each device lane the last event that ended before it did.
  [[nodiscard]] std::vector<std::size_t> waited_for(std::size_t event) const;

 private:
  void link_launches();
  void choose_collectives();
  void match_titles(std::vector<std::size_t> const& calls, std::vector<std::size_t> const& titles);
  void take_apart();
  void add_all();
  void add(std::size_t event);
  void order_device_lanes();
  [[nodiscard]] bool within(std::size_t event, bool (*is)(Event const&)) const;

  Events const& all_;
  Forest const& forest_;
  std::vector<std::vector<std::size_t>> launched_;
  std::vector<std::size_t> launcher_;
  std::vector<std::size_t> call_of_;
  std::vector<std::vector<std::size_t>> on_device_;  ///< by device lane: its events, by start
  std::vector<bool> is_collective_;
  std::vector<bool> apart_;
  std::vector<Operator> list_;
  std::vector<std::size_t> of_event_;
};

}  // namespace weft::kineto
