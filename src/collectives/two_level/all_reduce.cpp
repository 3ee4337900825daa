// all_reduce: each rank of a host combines one share of the host's data; the ranks of a place combine their shares
// across hosts; then the ranks of each host gather all shares.
#include "collectives/two_level/plans.hpp"
#include "collectives/two_level/shared_plan.hpp"

namespace weft::two_level {
namespace {

class AllReduce final : public SharedPlan {
 public:
  using SharedPlan::SharedPlan;

  [[nodiscard]] std::vector<Call> before(std::size_t step) const override {
    auto [scatter, base] = shares(step, Operation::reduce_scatter, Operation::reduce_scatter_v);
    scatter.send = at(call().send, bytes_of(base));
    scatter.recv = own_place(step);  // in place where the call is
    return {scatter};
  }
  [[nodiscard]] staged::Copies copies_out(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    add_row(copies, slot.send, own_place(step), bytes_of(own(step).count));
    return copies;
  }
  void exchange(std::size_t step, staged::Slot const& slot) const override {
    levels().across->all_reduce(given(step, slot), got(step, slot), between_hosts(call().contract.reduce), how());
  }
  [[nodiscard]] staged::Copies copies_in(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    add_row(copies, own_place(step), slot.recv, bytes_of(own(step).count));
    return copies;
  }
  [[nodiscard]] std::vector<Call> after(std::size_t step) const override {
    auto [gather, base] = shares(step, Operation::all_gather, Operation::all_gather_v);
    gather.send = own_place(step);
    gather.recv = at(call().recv, bytes_of(base));
    return {gather};
  }
  [[nodiscard]] std::string way() const override { return "combined inside hosts by NCCL, between them by the host"; }

 private:
  [[nodiscard]] std::byte* own_place(std::size_t step) const { return at(call().recv, bytes_of(own(step).first)); }
};

}  // namespace

std::unique_ptr<staged::Plan> all_reduce(Call const& call, Levels const& levels) {
  return std::make_unique<AllReduce>(call, levels);
}

}  // namespace weft::two_level
