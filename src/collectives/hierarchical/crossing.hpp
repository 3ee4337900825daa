#pragma once

#include <deque>
#include <vector>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"

namespace weft::hierarchical {

/// What the ranks of a call send one another between hosts, step by step. Several steps are under way at once: while
/// they cross, hosts share or combine what came before. Where the level between hosts does not give out its messages
/// (Levels::between is empty), begin() returns only when its step is over.
class HierarchicalBackend::Crossing {
 public:
  /// How many steps under way at once keep a rank's link busy.
  static constexpr std::size_t kAhead = 3;

  /// For `call`, which has been announced. No other call between hosts may be made while the Crossing lives.
  Crossing(HierarchicalBackend& owner, Call const& call);
  Crossing(Crossing const&) = delete;
  Crossing& operator=(Crossing const&) = delete;
  /// Waits for steps that are left. There are some only after a failure; all ranks know of it, and it ends the steps.
  ~Crossing();

  /// Begins a step: given.counts[r] elements of `send`, from given.offsets[r] on, go to rank r, and got.counts[r]
  /// elements come from it to got.offsets[r] of `recv`. All ranks agree on the counts, and begin the same steps in the
  /// same order.
  void begin(void const* send, PartArrays const& given, void* recv, PartArrays const& got);
  /// Waits until the oldest step under way is complete: what was sent may be written, what came may be read.
  void wait();

 private:
  using Step = std::vector<Transport::Request>;

  [[nodiscard]] Step start(Transport& between, void const* send, PartArrays const& given, void* recv,
                           PartArrays const& got) const;
  void wait_for(Step& step);

  HierarchicalBackend& owner_;
  Call call_;
  Transport* between_ = nullptr;  // null where the level between hosts does not give out its messages
  std::deque<Step> under_way_;
};

}  // namespace weft::hierarchical
