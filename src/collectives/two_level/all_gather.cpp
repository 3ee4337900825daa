// all_gather: each piece crosses to every other host once, among the ranks of its owner's place; then the ranks of each
// host exchange what they received.
#include "collectives/two_level/piece_plan.hpp"
#include "collectives/two_level/plans.hpp"

namespace weft::two_level {
namespace {

class AllGather final : public PiecePlan {
 public:
  AllGather(Call const& call, Levels const& levels) : PiecePlan(call, levels, call.recv_parts) {}

  [[nodiscard]] staged::Copies copies_out(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    add_row(copies, slot.send, at(call().send, offset(step)), own(step).length);
    return copies;
  }
  void exchange(std::size_t step, staged::Slot const& slot) const override {
    auto const dtype = call().contract.dtype;
    auto const counts = counts_of_place(step);
    levels().across->all_gather(ConstBufferView(slot.send, own(step).length / element(), dtype),
                                BufferView(slot.recv, bytes_of_place(step) / element(), dtype), Parts{counts}, how());
  }
  [[nodiscard]] staged::Copies copies_in(std::size_t step, staged::Slot const& slot) const override {
    staged::Copies copies;
    auto const* from = slot.recv;
    for (std::size_t host = 0; host < levels().hosts(); ++host) {
      auto const [first, length] = range(step, levels().rank_on(host));
      add_row(copies, at(call().recv, first), from, length);
      from += length;
    }
    return copies;
  }
  [[nodiscard]] std::vector<Call> after(std::size_t step) const override {
    std::vector<Call> calls;
    for (std::size_t host = 0; host < levels().hosts(); ++host) {
      auto made = pieces_of(host, step, Operation::all_gather, Operation::all_gather_v);
      if (!made) continue;
      made->call.send = at(call().recv, range(step, levels().rank_on(host)).offset);
      made->call.recv = at(call().recv, made->base * element());
      calls.push_back(made->call);
    }
    return calls;
  }
  [[nodiscard]] std::string way() const override { return "between hosts by the host, inside by NCCL"; }
};

}  // namespace

std::unique_ptr<staged::Plan> all_gather(Call const& call, Levels const& levels) {
  return std::make_unique<AllGather>(call, levels);
}

}  // namespace weft::two_level
