// reduce_scatter: each rank of a host combines the host's contributions to the pieces of its place; then the ranks of a
// place combine these results across hosts.
#include "collectives/two_level/piece_plan.hpp"
#include "collectives/two_level/plans.hpp"

namespace weft::two_level {
namespace {

class ReduceScatter final : public PiecePlan {
 public:
  ReduceScatter(Call const& call, Levels const& levels) : PiecePlan(call, levels, call.send_parts) {}

  [[nodiscard]] std::vector<Call> before(std::size_t step) const override {
    std::vector<Call> calls;
    auto* partial = levels().scratch_of(step);
    for (std::size_t host = 0; host < levels().hosts(); ++host) {
      auto made = pieces_of(host, step, Operation::reduce_scatter, Operation::reduce_scatter_v);
      if (!made) continue;
      made->call.send = at(call().send, made->base * element());
      made->call.recv = partial;
      partial += range(step, levels().rank_on(host)).length;
      calls.push_back(made->call);
    }
    return calls;
  }
  [[nodiscard]] staged::Copies copies_out(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    add_row(copies, slot.send, levels().scratch_of(step), bytes_of_place(step));
    return copies;
  }
  void exchange(std::size_t step, staged::Slot const& slot) const override {
    auto const dtype = call().contract.dtype;
    auto const counts = counts_of_place(step);
    levels().across->reduce_scatter(ConstBufferView(slot.send, bytes_of_place(step) / element(), dtype),
                                    BufferView(slot.recv, own(step).length / element(), dtype), Parts{counts},
                                    between_hosts(call().contract.reduce), how());
  }
  [[nodiscard]] staged::Copies copies_in(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    add_row(copies, at(call().recv, offset(step)), slot.recv, own(step).length);
    return copies;
  }
  [[nodiscard]] std::string way() const override { return "combined inside hosts by NCCL, between them by the host"; }
};

}  // namespace

std::unique_ptr<staged::Plan> reduce_scatter(Call const& call, Levels const& levels) {
  return std::make_unique<ReduceScatter>(call, levels);
}

}  // namespace weft::two_level
