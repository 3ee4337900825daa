// sendrecv, hypercube: operations made of messages between two ranks.
#include "common/cases.hpp"
#include "common/traffic.hpp"

namespace weft::perf {
namespace {

/// Every rank sends to the next rank and receives from the previous one. If the send buffer were the receive buffer,
/// the result would be undefined. So the "in place" form sends from memory behind what it receives, and its result is
/// not checked.
class SendRecv final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::send_recv; }
  [[nodiscard]] std::string name() const override { return "sendrecv"; }
  [[nodiscard]] bool checks_in_place() const override { return false; }
  [[nodiscard]] Counts counts(std::size_t elements, int) const override { return {elements, elements, elements}; }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place,
                                  bool in_place) const override {
    if (!in_place) return {send.slice(0, counts.send), recv.slice(0, counts.recv)};
    return {recv.slice(counts.recv, counts.send), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] std::size_t room(Counts counts) const override { return counts.send + counts.recv; }
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] double expected(Reference const& reference, Place place, std::size_t index, Counts) const override {
    return reference.contribution((place.rank - 1 + place.ranks) % place.ranks, index);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    auto const from = static_cast<std::size_t>((place.rank - 1 + place.ranks) % place.ranks);
    sum_to_all({sends[from]}, {recvs[static_cast<std::size_t>(place.rank)]}, 0, elements, streaming);
  }
};

/// An all_gather of log2(ranks) exchanges: in step k a rank swaps all it has with rank XOR 2^k.
class HyperCube final : public Case {
 public:
  [[nodiscard]] Op op() const override { return Op::hypercube; }
  [[nodiscard]] std::string name() const override { return "hypercube"; }
  [[nodiscard]] bool supports(int ranks) const override { return ranks > 0 && (ranks & (ranks - 1)) == 0; }
  [[nodiscard]] Counts counts(std::size_t elements, int ranks) const override {
    auto const share = elements / static_cast<std::size_t>(ranks);
    return {share, share * static_cast<std::size_t>(ranks), share};
  }
  [[nodiscard]] Operands operands(BufferView send, BufferView recv, Counts counts, Place place,
                                  bool in_place) const override {
    auto const own = recv.slice(static_cast<std::size_t>(place.rank) * counts.send, counts.send);
    return {in_place ? own : send.slice(0, counts.send), recv.slice(0, counts.recv)};
  }
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] std::size_t algorithm_elements(Counts counts, int ranks) const override {
    return counts.parameter * static_cast<std::size_t>(ranks - 1);
  }
  [[nodiscard]] double expected(Reference const& reference, Place, std::size_t index, Counts counts) const override {
    return reference.contribution(static_cast<int>(index / counts.send), index % counts.send);
  }
  void touch(std::vector<float*> const& sends, std::vector<float*> const& recvs, std::size_t elements, Place place,
             bool streaming) const override {
    auto* const mine = recvs[static_cast<std::size_t>(place.rank)];
    for (std::size_t from = 0; from < sends.size(); ++from) {
      Share const part(elements, from, sends.size());
      sum_to_all({sends[from]}, {mine}, part.first, part.last, streaming);
    }
  }
};

}  // namespace

std::unique_ptr<Case> send_recv_case() {
  return std::make_unique<SendRecv>();
}
std::unique_ptr<Case> hypercube_case() {
  return std::make_unique<HyperCube>();
}

}  // namespace weft::perf
