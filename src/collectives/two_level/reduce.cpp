// reduce: as all_reduce, but only the ranks of the root's host get the combined shares, and only the root gets all of
// them.
#include "collectives/two_level/plans.hpp"
#include "collectives/two_level/shared_plan.hpp"

namespace weft::two_level {
namespace {

class Reduce final : public SharedPlan {
 public:
  using SharedPlan::SharedPlan;

  [[nodiscard]] std::vector<Call> before(std::size_t step) const override {
    auto [scatter, base] = shares(step, Operation::reduce_scatter, Operation::reduce_scatter_v);
    scatter.send = at(call().send, bytes_of(base));
    scatter.recv = levels().scratch_of(step);
    return {scatter};
  }
  [[nodiscard]] staged::Copies copies_out(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    add_row(copies, slot.send, levels().scratch_of(step), bytes_of(own(step).count));
    return copies;
  }
  void exchange(std::size_t step, staged::Slot const& slot) const override {
    levels().across->reduce(given(step, slot), got(step, slot), between_hosts(call().contract.reduce), roots_host(),
                            how());
  }
  [[nodiscard]] staged::Copies copies_in(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    if (is_with_root()) add_row(copies, levels().scratch_of(step), slot.recv, bytes_of(own(step).count));
    return copies;
  }
  [[nodiscard]] std::vector<Call> after(std::size_t step) const override {
    if (!is_with_root()) return {};
    auto [gather, base] = shares(step, Operation::gather, Operation::gather_v);
    gather.contract.root = static_cast<std::uint32_t>(levels().layout.local_index(root()));
    gather.send = levels().scratch_of(step);
    if (call().is_root(levels().layout.rank())) gather.recv = at(call().recv, bytes_of(base));
    return {gather};
  }
  [[nodiscard]] std::string way() const override { return "combined inside hosts by NCCL, between them by the host"; }

 private:
  [[nodiscard]] int root() const noexcept { return static_cast<int>(call().contract.root); }
  [[nodiscard]] int roots_host() const noexcept { return levels().layout.host_of(root()); }
  [[nodiscard]] bool is_with_root() const noexcept { return roots_host() == levels().host(); }
};

}  // namespace

std::unique_ptr<staged::Plan> reduce(Call const& call, Levels const& levels) {
  return std::make_unique<Reduce>(call, levels);
}

}  // namespace weft::two_level
