// all_reduce, reduce_scatter, reduce.
#include "common/cases.hpp"
#include "common/traffic.hpp"

namespace weft::perf {
namespace {

class AllReduce final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::all_reduce; }
  [[nodiscard]] std::string name() const override { return "all_reduce"; }
  [[nodiscard]] bool reduces() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int) const override { return {elements, elements, elements}; }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place,
                                  bool in_place) const override {
    return {(in_place ? recv : send).slice(0, counts.send), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
  [[nodiscard]] double expected(Reference const& reference, Place, std::size_t index, Counts) const override {
    return reference.reduced(index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    Share const mine(elements, static_cast<std::size_t>(place.rank), sends.size());
    sum_to_all(sends, recvs, mine.first, mine.last, streaming);
  }
};

class ReduceScatter final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::reduce_scatter; }
  [[nodiscard]] std::string name() const override { return "reduce_scatter"; }
  [[nodiscard]] bool reduces() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = elements / static_cast<std::size_t>(ranks);
    return {share * static_cast<std::size_t>(ranks), share, share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                  bool in_place) const override {
    if (!in_place) return {send.slice(0, counts.send), recv.slice(0, counts.recv)};
    return {recv.slice(0, counts.send), recv.slice(static_cast<std::size_t>(place.rank) * counts.recv, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int ranks) const override { return 1.0 * (ranks - 1) / ranks; }
  [[nodiscard]] double expected(Reference const& reference, Place place, std::size_t index,
                                Counts counts) const override {
    return reference.reduced(static_cast<std::size_t>(place.rank) * counts.recv + index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    auto const rank = static_cast<std::size_t>(place.rank);
    Share const mine(elements, rank, sends.size());
    sum_to_all(sends, {recvs[rank]}, mine.first, mine.last, streaming);
  }
};

class Reduce final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::reduce; }
  [[nodiscard]] std::string name() const override { return "reduce"; }
  [[nodiscard]] bool reduces() const override { return true; }
  [[nodiscard]] bool rooted() const override { return true; }
  [[nodiscard]] Counts counts(std::size_t elements, int) const override { return {elements, elements, elements}; }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                  bool in_place) const override {
    return {(in_place ? recv : send).slice(0, counts.send), recv.slice(0, place.is_root() ? counts.recv : 0)};
  }
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] double expected(Reference const& reference, Place, std::size_t index, Counts) const override {
    return reference.reduced(index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    Share const mine(elements, static_cast<std::size_t>(place.rank), sends.size());
    sum_to_all(sends, {recvs[static_cast<std::size_t>(place.root)]}, mine.first, mine.last, streaming);
  }
};

}  // namespace

std::unique_ptr<Case> all_reduce_case() {
  return std::make_unique<AllReduce>();
}
std::unique_ptr<Case> reduce_scatter_case() {
  return std::make_unique<ReduceScatter>();
}
std::unique_ptr<Case> reduce_case() {
  return std::make_unique<Reduce>();
}

}  // namespace weft::perf
