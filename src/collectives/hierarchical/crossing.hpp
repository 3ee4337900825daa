#pragma once

#include <deque>
#include <vector>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"

namespace weft::hierarchical {

/// What the ranks of a call send one another between hosts, step by step, several steps under way at once: while they
/// cross, what came before is shared or combined inside hosts. Over a back end whose messages cannot be had, a step is
/// over when begin() returns.
class HierarchicalBackend::Crossing {
 public:
  /// Of how many steps at once a rank's link has enough to do.
  static constexpr std::size_t kAhead = 3;

  /// For `call`, which has been announced. No other call between hosts is made while it lives.
  Crossing(HierarchicalBackend& owner, Call const& call);
  Crossing(Crossing const&) = delete;
  Crossing& operator=(Crossing const&) = delete;
  /// Where steps are left a failure has been told to all, and ends them.
  ~Crossing();

  /// given.counts[r] elements of `send` from given.offsets[r] on go to rank r, got of `recv` come from it; all ranks
  /// agree on the counts. Collective, and in the same order everywhere.
  void begin(void const* send, PartArrays const& given, void* recv, PartArrays const& got);
  /// Until the first of the steps that are under way is complete: what was sent may be written, what came may be read.
  void wait();

 private:
  using Step = std::vector<Transport::Request>;

  [[nodiscard]] Step start(Transport& between, void const* send, PartArrays const& given, void* recv,
                           PartArrays const& got) const;
  void wait_for(Step& step);

  HierarchicalBackend& owner_;
  Call call_;
  Transport* between_ = nullptr;  // none where there are no messages
  std::deque<Step> under_way_;
};

}  // namespace weft::hierarchical
