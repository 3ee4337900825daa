// A call that NCCL does entirely, where it reaches all ranks. Meanwhile the host compares what the ranks call.
#include "collectives/two_level/plans.hpp"

namespace weft::two_level {
namespace {

class Direct final : public staged::Plan {
 public:
  using Plan::Plan;

  [[nodiscard]] std::size_t steps() const noexcept override { return 1; }
  [[nodiscard]] staged::Copies copies_out(std::size_t, staged::Slot const&) const override { return {}; }
  [[nodiscard]] staged::Copies copies_in(std::size_t, staged::Slot const&) const override { return {}; }
  void exchange(std::size_t, staged::Slot const&) const override {}
  [[nodiscard]] bool goes_inside() const noexcept override { return true; }
  [[nodiscard]] std::vector<Call> before(std::size_t /*step*/) const override { return {call()}; }
  [[nodiscard]] std::string way() const override { return "by NCCL"; }
};

}  // namespace

std::unique_ptr<staged::Plan> direct(Call const& call) {
  return std::make_unique<Direct>(call);
}

}  // namespace weft::two_level
