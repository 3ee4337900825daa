// broadcast: the root scatters shares to the ranks of its host; each of them sends its share to the other ranks of its
// place; then the ranks of every host exchange their shares.
#include "collectives/two_level/plans.hpp"
#include "collectives/two_level/shared_plan.hpp"

namespace weft::two_level {
namespace {

class Broadcast final : public SharedPlan {
 public:
  using SharedPlan::SharedPlan;

  [[nodiscard]] std::vector<Call> before(std::size_t step) const override {
    if (!is_with_root()) return {};
    auto [scatter, base] = shares(step, Operation::scatter, Operation::scatter_v);
    scatter.contract.root = static_cast<std::uint32_t>(levels().layout.local_index(root()));
    scatter.send = at(call().recv, bytes_of(base));
    scatter.recv = own_place(step);
    return {scatter};
  }
  [[nodiscard]] staged::Copies copies_out(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    if (is_with_root()) add_row(copies, slot.recv, own_place(step), bytes_of(own(step).count));
    return copies;
  }
  void exchange(std::size_t step, staged::Slot const& slot) const override {
    levels().across->broadcast(got(step, slot), roots_host(), how());
  }
  [[nodiscard]] staged::Copies copies_in(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    if (!is_with_root()) add_row(copies, own_place(step), slot.recv, bytes_of(own(step).count));
    return copies;
  }
  [[nodiscard]] std::vector<Call> after(std::size_t step) const override {
    auto [gather, base] = shares(step, Operation::all_gather, Operation::all_gather_v);
    gather.send = own_place(step);
    gather.recv = at(call().recv, bytes_of(base));
    return {gather};
  }
  [[nodiscard]] std::string way() const override { return "shares, between hosts by the host, inside by NCCL"; }

 private:
  [[nodiscard]] int root() const noexcept { return static_cast<int>(call().contract.root); }
  [[nodiscard]] int roots_host() const noexcept { return levels().layout.host_of(root()); }
  [[nodiscard]] bool is_with_root() const noexcept { return roots_host() == levels().host(); }
  [[nodiscard]] std::byte* own_place(std::size_t step) const { return at(call().recv, bytes_of(own(step).first)); }
};

}  // namespace

std::unique_ptr<staged::Plan> broadcast(Call const& call, Levels const& levels) {
  return std::make_unique<Broadcast>(call, levels);
}

}  // namespace weft::two_level
